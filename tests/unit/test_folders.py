"""Nothing of ours is written or read through a link, whichever component is one and whatever we do with it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.folders import OutputFolder, file_name
from support.full_disk import files_of_at_most

OUT = ".agent-eval/out"
NAME = "logs/agent.log"
WAY = (".agent-eval", OUT, f"{OUT}/logs", f"{OUT}/{NAME}")


def write_to(file: BinaryIO) -> None:
    with file:
        file.write(b"ours")


def read_from(file: BinaryIO) -> bytes:
    with file:
        return file.read()


OPERATIONS: dict[str, Callable[[OutputFolder], object]] = {
    "append": lambda out: write_to(out.append(NAME)),
    "create": lambda out: write_to(out.create(NAME)),
    "replace": lambda out: out.replace(NAME, [b"ours"]),
    "remove": lambda out: out.remove(NAME),
    "read": lambda out: read_from(out.read(NAME)),
    "rename": lambda out: (out / "logs").rename("agent.log", "other.log"),
    "make": lambda out: (out / "logs").make(),
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def plant(workspace: Path, way: str, outside: Path) -> None:
    """The files of a run, with ``way`` exchanged for a link to the same thing outside."""
    logs = outside / "tree" / OUT / "logs"
    logs.mkdir(parents=True)
    (logs / "agent.log").write_bytes(b"precious")
    link = workspace / way
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside / "tree" / way)


def everything(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("way", WAY)
def test_what_lies_behind_a_link_is_neither_read_nor_changed(workspace, tmp_path, way, operation):
    plant(workspace, way, tmp_path / "outside")
    before = everything(tmp_path / "outside")
    out = OutputFolder.at(workspace / OUT, workspace)
    if way == WAY[-1] and operation in {"create", "replace", "remove", "rename", "make"}:
        OPERATIONS[operation](out)  # the link itself gives way, or stays
    else:
        with pytest.raises(OSError, match=f"{workspace / way} is a symbolic link"):
            OPERATIONS[operation](out)
    assert everything(tmp_path / "outside") == before


@pytest.mark.parametrize("operation", ["create", "replace", "remove"])
def test_a_link_of_a_files_name_gives_way(workspace, tmp_path, operation):
    plant(workspace, WAY[-1], tmp_path / "outside")
    out = OutputFolder.at(workspace / OUT, workspace)
    OPERATIONS[operation](out)
    assert not (workspace / WAY[-1]).is_symlink()
    assert out.holds(NAME) is (operation != "remove")


@pytest.mark.parametrize("operation", ["append", "create", "replace", "read"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_not_waited_for(workspace, operation, make):
    (workspace / OUT / "logs").mkdir(parents=True)
    make(workspace / OUT / NAME)
    out = OutputFolder.at(workspace / OUT, workspace)
    if operation in {"create", "replace"} and make is os.mkfifo:
        OPERATIONS[operation](out)
        assert (workspace / OUT / NAME).is_file()
    else:
        with pytest.raises(OSError, match=r"agent\.log|directory|file|address"):
            OPERATIONS[operation](out)


def test_a_file_with_another_name_is_not_appended_to(workspace, tmp_path):
    (tmp_path / "precious").write_bytes(b"precious")
    (workspace / OUT / "logs").mkdir(parents=True)
    (workspace / OUT / NAME).hardlink_to(tmp_path / "precious")
    out = OutputFolder.at(workspace / OUT, workspace)
    with pytest.raises(OSError, match="hard link"):
        out.append(NAME)
    out.replace(NAME, [b"ours"])
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_a_link_that_takes_a_folders_place_while_we_write_is_not_followed(workspace, tmp_path):
    """An agent of the same user exchanges the folder between two writes, and while one is under way."""
    out = OutputFolder.at(workspace / OUT, workspace)
    (tmp_path / "outside" / "logs").mkdir(parents=True)
    with out.replacing(NAME) as file:
        file.write(b"first")
        (workspace / OUT).rename(workspace / "moved")
        (workspace / OUT).symlink_to(tmp_path / "outside")
    assert (workspace / "moved" / NAME).read_bytes() == b"first"
    with pytest.raises(OSError, match="symbolic link"):
        out.append("logs/second.log")
    assert [path.name for path in (tmp_path / "outside").rglob("*")] == ["logs"]


def test_links_above_the_workspace_and_in_a_place_of_the_users_are_followed(workspace, tmp_path):
    (tmp_path / "alias").symlink_to(workspace)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "results").symlink_to(tmp_path / "elsewhere")
    OutputFolder.at(tmp_path / "alias" / OUT, tmp_path / "alias").replace(NAME, [b"a"])
    OutputFolder.at(tmp_path / "results", workspace).replace(NAME, [b"b"])
    assert (workspace / OUT / NAME).read_bytes() == b"a"
    assert (tmp_path / "elsewhere" / NAME).read_bytes() == b"b"


def test_another_name_of_the_workspace_opens_no_way_out(workspace, tmp_path):
    (tmp_path / "alias").symlink_to(workspace)
    (tmp_path / "outside").mkdir()
    (workspace / "out").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="symbolic link"):
        OutputFolder.at(tmp_path / "alias" / "out", workspace).replace(NAME, [b"ours"])
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/x", "logs/../../x", "a//b", "logs/", "a\0b"])
@pytest.mark.parametrize("operation", ["append", "create", "read", "remove", "replace"])
def test_a_name_that_leads_elsewhere_is_refused(workspace, name, operation):
    out = OutputFolder.at(workspace / OUT, workspace)
    arguments = {"replace": ([b"x"],)}.get(operation, ())
    with pytest.raises(OSError, match="not the name of a file"):
        getattr(out, operation)(name, *arguments)
    assert [path.name for path in workspace.rglob("*") if path.is_file()] == []


@given(name=st.text())
def test_the_file_of_any_name_is_one_component(name):
    found = file_name(name)
    assert found
    assert not found.startswith(".")
    assert "/" not in found
    assert found.isascii()
    assert found.isprintable()
    assert len(found) <= 120


@given(names=st.lists(st.text(max_size=4), unique=True, min_size=2, max_size=2))
def test_two_names_have_two_files(names):
    assert file_name(names[0]) != file_name(names[1])


def test_a_plain_name_is_its_file():
    assert file_name("dice_agent-1.2") == "dice_agent-1.2"


def test_a_file_is_replaced_whole_and_keeps_its_mode(workspace):
    out = OutputFolder.at(workspace, workspace)
    out.replace("x.json", [b"old"])
    (workspace / "x.json").chmod(0o640)
    with (workspace / "x.json").open("rb") as before:
        out.replace("x.json", [b"n", b"ew"])
        assert before.read() == b"old"
    assert (workspace / "x.json").read_bytes() == b"new"
    assert stat.S_IMODE((workspace / "x.json").stat().st_mode) == 0o640
    assert [path.name for path in workspace.iterdir()] == ["x.json"]


def test_a_full_disk_leaves_what_was_there_and_nothing_half_written(workspace):
    out = OutputFolder.at(workspace / OUT, workspace)
    out.replace("x.json", [b"old"])
    with files_of_at_most(1000):
        with pytest.raises(OSError, match="too large"):
            out.replace("x.json", [b"x" * 400] * 10)
        with pytest.raises(OSError, match="too large"):
            out.replace("y.json", [b"x" * 4000])
    assert [(path.name, path.read_bytes()) for path in (workspace / OUT).iterdir()] == [("x.json", b"old")]


def test_every_link_below_is_found_and_none_is_entered(workspace, tmp_path):
    out = workspace / OUT
    (out / "a" / "b").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "link").symlink_to("/etc/passwd")
    (out / "a" / "folder").symlink_to(tmp_path / "outside")
    (out / "a" / "b" / "circle").symlink_to(out)
    (out / "self").symlink_to("self")
    assert sorted(OutputFolder.at(out, workspace).links()) == ["a/b/circle", "a/folder", "self"]


def test_private_folders_are_nobody_elses(workspace):
    OutputFolder.at(workspace / ".agent-eval" / "cache", workspace, private=True).replace("ab/x", [b"secret"])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in workspace.rglob("*")}
    assert modes == {".agent-eval": 0o700, "cache": 0o700, "ab": 0o700, "x": 0o600}


@pytest.mark.parametrize("operation", ["append", "create", "replace", "make"])
def test_a_part_of_a_folder_that_does_not_exist_yet_is_made_with_it(operation, tmp_path):
    """Outside the workspace, where the user names a folder that no run has made before."""
    part = OutputFolder.at(tmp_path / "new" / "cache") / "answers"
    OPERATIONS[operation](part)
    assert (tmp_path / "new" / "cache" / "answers").is_dir()
