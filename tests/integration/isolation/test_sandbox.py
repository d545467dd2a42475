"""A sandbox's processes: their limits, their certificates, what they are told; and a machine that cannot have any."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from agent_eval_action.sandbox.sandboxes import Sandboxes, open_sandboxes

LIMITS = """
import json, resource
names = ("RLIMIT_CORE", "RLIMIT_FSIZE", "RLIMIT_NPROC", "RLIMIT_DATA")
print(json.dumps({name: resource.getrlimit(getattr(resource, name)) for name in names}))
print(open("/proc/self/oom_score_adj").read())
print(open("/proc/self/status").read())
"""

READ = """
import os
for name in %s:
    try:
        data = open(os.environ[name]).read()
        print("CERTIFICATES" if data.startswith("-----BEGIN CERTIFICATE-----") else data)
    except OSError:
        print("closed")
"""

CELL = """
import json, subprocess, sys
from pathlib import Path
from agent_eval_action.sandbox.sandboxes import open_sandboxes
def print_(text, level):
    print(text, file=sys.stderr)
workspace = Path(sys.argv[1])
step, seen = json.loads(sys.argv[2])
sandboxes = open_sandboxes({"AGENT_EVAL_ISOLATION": "on", **step}, workspace, [], print_)
sandbox = sandboxes.sandbox("head", workspace)
environ = sandbox.environ(seen)
print(json.dumps({"uid": sandbox.user.uid, "tree": str(sandbox.tree), "environ": environ}), flush=True)
command = sandbox.user.command([sys.executable, "-I", "-S", "-c", sys.argv[3]])
subprocess.run(command, cwd=sandbox.tree, env=environ, check=True, **sandbox.user.options())
options = {"stdout": subprocess.DEVNULL, "start_new_session": True, **sandbox.user.options()}
left = subprocess.Popen(["sleep", "300"], env={}, **options)
sandboxes.close()
print(f"left behind ended with {left.wait(10)}")
"""


def opened(workspace: Path, environ: dict[str, str]) -> tuple[Sandboxes | None, list[str]]:
    said: list[str] = []
    found = open_sandboxes(environ, workspace, [workspace / ".agent-eval"], lambda text, _: said.append(text))
    return found, said


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    (folder / "agent").mkdir(parents=True)
    (folder / "agent" / "agent.py").write_text("")
    return folder


def test_who_is_not_root_is_warned_once_and_everything_works_as_before(workspace):
    if os.geteuid() == 0:
        pytest.skip("NOT TESTED, running without root: we are root")
    found, said = opened(workspace, {"AGENT_EVAL_ISOLATION": "on"})
    assert found is None
    assert len(said) == 1
    assert "only root" in said[0]


@pytest.mark.parametrize(("asked", "why"), [("off", "AGENT_EVAL_ISOLATION is off"), ("", "AGENT_EVAL_ISOLATION=on")])
def test_where_it_is_not_asked_for_it_is_said_how_to(workspace, asked, why):
    if os.geteuid() != 0:
        why = "only root" if asked != "off" else why
    found, said = opened(workspace, {"AGENT_EVAL_ISOLATION": asked})
    assert found is None
    assert len(said) == 1
    assert why in said[0]


def in_sandbox(pythons, workspace: Path, step: dict[str, str], seen: dict[str, str], program: str) -> list[str]:
    """What a sandbox's process prints. ``step`` is the step's environment, ``seen`` what was picked for the agent."""
    done = subprocess.run(  # in a process of its own, which then cannot gain privileges any more
        [str(pythons.tool), "-I", "-c", CELL, str(workspace), json.dumps([step, seen]), program],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_only_certificates_that_the_step_names_are_handed_over(pythons, workspace, tmp_path):
    authority = Path("/etc/ssl/certs/ca-certificates.crt")
    if not authority.exists():
        pytest.skip("NOT TESTED, this machine has no bundle of certificates")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "ca.pem").write_bytes(authority.read_bytes())
    (closed / "token").write_text("s3cret")
    step = {"SSL_CERT_FILE": str(closed / "ca.pem"), "CURL_CA_BUNDLE": str(closed / "token")}
    names = ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"]
    # the last two are what a configuration file says in the place of the step
    seen = {**step, "REQUESTS_CA_BUNDLE": "/etc/shadow", "NODE_EXTRA_CA_CERTS": str(closed / "other.pem")}
    (closed / "other.pem").write_bytes(authority.read_bytes())
    said, *readable = in_sandbox(pythons, workspace, step, seen, READ % names)
    environ = json.loads(said)["environ"]
    assert readable[:4] == ["CERTIFICATES", "closed", "closed", "closed"]
    assert environ["NODE_EXTRA_CA_CERTS"] == str(closed / "other.pem")
    assert environ["SSL_CERT_FILE"] != str(closed / "ca.pem")


def test_a_sandboxes_process_is_bounded_and_has_a_home_of_its_own(pythons, workspace, tmp_path):
    given = {"DATA": f"{workspace}/agent", "HOME": "/root", "XDG_CACHE_HOME": "/x"}
    said, limits, oom, *status = in_sandbox(pythons, workspace, {}, given, LIMITS)
    sandbox = json.loads(said)
    bounds = json.loads(limits)
    assert bounds["RLIMIT_CORE"] == [0, 0]
    assert all(0 < soft == hard for name, (soft, hard) in bounds.items() if name != "RLIMIT_CORE")
    assert oom == "900"
    uid = sandbox["uid"]
    assert {"NoNewPrivs:\t1", "CapEff:\t0000000000000000", f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}"} <= set(status)
    assert status[-1] == "left behind ended with -9"
    environ = sandbox["environ"]
    assert environ["DATA"] == f"{sandbox['tree']}/agent"
    assert environ["HOME"] not in {"/root", str(tmp_path)}
    assert "XDG_CACHE_HOME" not in environ
    assert not Path(sandbox["tree"]).exists()
