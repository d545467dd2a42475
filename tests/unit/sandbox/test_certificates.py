"""What root copies of a certificate bundle: certificates, from a file that no link of the change leads to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agent_eval_action.sandbox.sandboxes import read_certificates


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificate")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "ca.pem")]
    subprocess.run([*made, *files], check=True, capture_output=True)
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    return folder


def test_the_certificates_are_copied_and_nothing_around_them(certificate, workspace):
    mixed = workspace / "mixed.pem"
    authority, key = (certificate / "ca.pem").read_bytes(), (certificate / "key.pem").read_bytes()
    mixed.write_bytes(b"# a secret comment\n" + key + authority + b"token=s3cret\n" + authority)
    assert read_certificates(mixed, workspace) == authority * 2


def test_a_link_of_the_machine_is_followed_and_one_of_the_change_is_not(certificate, workspace, tmp_path):
    (tmp_path / "etc").symlink_to(certificate)
    assert read_certificates(tmp_path / "etc" / "ca.pem", workspace)
    (workspace / "ca.pem").symlink_to(certificate / "ca.pem")
    (workspace / "certs").symlink_to(certificate)
    (tmp_path / "into").symlink_to(workspace / "ca.pem")
    inside = [workspace / "ca.pem", workspace / "certs" / "ca.pem", workspace / "x" / ".." / "certs" / "ca.pem"]
    for path in inside:
        assert read_certificates(path, workspace) is None


@pytest.mark.parametrize(
    "data", [b"", b"[core]\n\ttoken = s3cret\n", b"-----BEGIN CERTIFICATE-----\ns3cret\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate_is_not_copied(workspace, data):
    (workspace / "x").write_bytes(data)
    assert read_certificates(workspace / "x", workspace) is None


def test_a_pipe_a_folder_and_nothing_are_none(workspace):
    os.mkfifo(workspace / "pipe")
    for path in (workspace / "pipe", workspace, workspace / "missing", Path("/dev/zero")):
        assert read_certificates(path, workspace) is None
