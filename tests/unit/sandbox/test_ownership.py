"""Files are given to the checkout's owner, and links are not followed. As root; elsewhere there is nothing to give."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from agent_eval_action.sandbox.container_init import owned_folders, restore_ownership

OWNER = 1001


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED, giving files back: only root writes files that are not the checkout's owner's")
    folder = tmp_path / "ws"
    out = folder / ".agent-eval" / "out"
    out.mkdir(parents=True)
    (out / "results.json").write_text("{}")
    (folder / "made-by-an-agent").write_text("x")
    os.chown(folder / "made-by-an-agent", 60_700, 60_700)
    (folder / "somebodys").write_text("x")
    os.chown(folder / "somebodys", 4242, 4242)
    os.chown(folder, OWNER, OWNER)
    return folder


def owner(path: Path) -> int:
    return path.lstat().st_uid


def test_what_root_and_agents_wrote_is_the_owners(checkout):
    restore_ownership([checkout])
    written = (".agent-eval", ".agent-eval/out", ".agent-eval/out/results.json", "made-by-an-agent")
    assert [owner(checkout / name) for name in written] == [OWNER] * 4
    assert owner(checkout / "somebodys") == 4242


def test_a_link_is_given_and_what_it_points_to_is_not(checkout, tmp_path):
    precious, folder = tmp_path / "docker.sock", tmp_path / "folder"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(precious))
    folder.mkdir()
    (folder / "file").write_text("root's")
    (checkout / ".agent-eval/out/link").symlink_to(precious)
    (checkout / ".agent-eval/out/folder").symlink_to(folder)
    restore_ownership([checkout])
    listener.close()
    assert owner(checkout / ".agent-eval/out/link") == OWNER
    assert owner(checkout / ".agent-eval/out/folder") == OWNER
    assert [owner(path) for path in (precious, folder, folder / "file")] == [0, 0, 0]


def test_gits_own_folder_stays_as_it_is(checkout):
    (checkout / ".git").mkdir()
    (checkout / ".git" / "HEAD").write_text("ref: refs/heads/main")
    restore_ownership([checkout])
    assert [owner(checkout / name) for name in (".git", ".git/HEAD")] == [0, 0]


def test_a_root_that_is_a_link_is_not_entered(checkout, tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "inside")
    (tmp_path / "inside" / "file").write_text("root's")
    restore_ownership([checkout, tmp_path / "home"])
    assert owner(tmp_path / "inside" / "file") == 0


def test_a_socket_in_the_checkout_stays_as_it_is(checkout):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(checkout / "socket"))
    restore_ownership([checkout])
    listener.close()
    assert owner(checkout / "socket") == 0


def test_where_all_is_roots_nothing_changes(checkout):
    os.chown(checkout, 0, 0)
    restore_ownership([checkout])
    assert owner(checkout / "made-by-an-agent") == 60_700


def test_ownership_is_restored_in_our_own_folder_first_when_time_is_short(checkout):
    restore_ownership([checkout], until=0.0)
    assert owner(checkout / ".agent-eval") == OWNER
    assert owner(checkout / "made-by-an-agent") == 60_700


def test_a_workspace_that_is_not_there_is_no_error(tmp_path):
    restore_ownership([tmp_path / "gone"])


def test_the_runners_folders_are_mounted_below_github():
    environ = {"GITHUB_WORKSPACE": "/github/workspace", "HOME": "/github/home", "RUNNER_TEMP": "/home/runner/_temp"}
    assert owned_folders(environ) == (Path("/github/workspace"), Path("/github/home"))


def deep(folder: Path, levels: int) -> None:
    """Folders in each other, as git can check them out."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def test_circles_and_very_deep_folders_end_nothing(checkout):
    (checkout / ".agent-eval/self").symlink_to("self")
    (checkout / ".agent-eval/up").symlink_to("..")
    deep(checkout, 1500)
    restore_ownership([checkout])
    assert owner(checkout / "d/d/d") == OWNER
    assert owner(checkout / ".agent-eval/out/results.json") == OWNER
    assert owner(checkout / ".agent-eval/self") == OWNER
    subprocess.run(["rm", "-rf", str(checkout / "d")], check=True)
