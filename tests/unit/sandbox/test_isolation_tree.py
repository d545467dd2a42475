"""What a copy of the checkout holds, and what it does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.sandbox.tree import TreeCopy

ME = os.geteuid(), os.getegid()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    for name in ("agent/agent.py", ".git/config", "sub/.git", ".agent-eval/out/results.json", "gha-creds-1.json"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def copied(source: Path, **more) -> Path:
    target = source.parent / "copy"
    environments = source.parent / "environments"
    environments.mkdir(exist_ok=True)
    TreeCopy(source, target, *ME, environments, **more).make()
    return target


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()}


def test_git_credentials_and_our_own_files_stay_behind(source):
    assert names(copied(source)) == {"agent/agent.py"}


def test_folders_of_ours_elsewhere_stay_behind_too(source):
    (source / "results").mkdir()
    (source / "results" / "results.json").write_text("{}")
    assert "results/results.json" not in names(copied(source, closed=[source / "results"]))


def test_others_may_see_none_of_it_and_the_builder_may_write(source):
    (source / "agent" / "agent.py").chmod(0o666)
    target = copied(source)
    assert (target / "agent" / "agent.py").stat().st_mode & 0o777 == 0o660
    assert target.stat().st_mode & 0o777 == 0o770


def test_set_uid_bits_are_not_copied(source):
    (source / "agent" / "agent.py").chmod(0o6755)
    assert (copied(source) / "agent" / "agent.py").stat().st_mode & 0o7777 == 0o770


def test_links_stay_links_and_those_into_the_checkout_lead_into_the_copy(source):
    (source / "relative").symlink_to("agent/agent.py")
    (source / "absolute").symlink_to(source / "agent")
    (source / "outside").symlink_to("/etc/passwd")
    target = copied(source)
    assert (target / "relative").readlink() == Path("agent/agent.py")
    assert (target / "absolute").readlink() == target / "agent"
    assert (target / "outside").readlink() == Path("/etc/passwd")
    assert (target / "outside").lstat().st_uid == ME[0]


def test_pipes_are_nobodys_source_code(source):
    os.mkfifo(source / "pipe")
    assert "pipe" not in names(copied(source))


def test_an_environment_that_does_not_start_here_is_left_out(source):
    (source / ".venv" / "bin").mkdir(parents=True)
    (source / ".venv" / "pyvenv.cfg").write_text("home = /opt/elsewhere\n")
    (source / ".venv" / "bin" / "python").symlink_to("/opt/elsewhere/bin/python3")
    assert not (copied(source) / ".venv").is_symlink()


def test_an_environment_that_starts_here_lies_where_the_agent_cannot_change_it(source):
    site = source / ".venv" / "lib" / "python3.13" / "site-packages"
    site.mkdir(parents=True)
    (source / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (source / ".venv" / "bin").mkdir()
    (source / ".venv" / "bin" / "python").symlink_to("/bin/sh")
    (site / "own.pth").write_text(f"{source}/src\n")
    target = copied(source)
    assert (target / ".venv").is_symlink()
    place = (target / ".venv").resolve()
    assert place.parent == source.parent / "environments"
    assert (place / "lib/python3.13/site-packages/own.pth").read_text() == f"{target}/src\n"


def test_too_large_a_checkout_is_reported_with_what_makes_it_so(source):
    (source / "models").mkdir()
    (source / "models" / "weights").write_bytes(b"x" * 3_000_000)
    with pytest.raises(AgentEnvironmentError) as caught:
        copied(source, limit=2_000_000)
    assert "models (2 MB)" in str(caught.value)


def test_circles_are_copied_as_they_are(source):
    (source / "self").symlink_to("self")
    (source / "a").symlink_to("b")
    (source / "b").symlink_to("a")
    (source / "agent" / "up").symlink_to("..")
    target = copied(source)
    assert {name: str((target / name).readlink()) for name in ("self", "a", "b", "agent/up")} == {
        "self": "self",
        "a": "b",
        "b": "a",
        "agent/up": "..",
    }


def test_very_deep_folders_are_refused_by_a_sentence(source):
    (source / "/".join(["d"] * 400)).mkdir(parents=True)
    with pytest.raises(AgentEnvironmentError, match="folders more than 250 deep"):
        copied(source)


@pytest.mark.parametrize("way", ["lib", "lib/python3.12", "lib/python3.12/site-packages", "{packages}/x.pth"])
def test_a_link_in_an_environment_that_was_committed_changes_nothing_outside(source, tmp_path, way):
    packages = "lib/python3.12/site-packages"
    outside = tmp_path / "outside"
    (outside / packages).mkdir(parents=True)
    (outside / packages / "x.pth").write_text(f"{source}/agent\n")
    link = source / ".venv" / way.format(packages=packages)
    for file in (source / ".venv" / "pyvenv.cfg", source / ".venv" / "bin" / "python"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside / way.format(packages=packages))
    copied(source)
    assert (outside / packages / "x.pth").read_text() == f"{source}/agent\n"
