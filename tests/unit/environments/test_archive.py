"""Environments kept in one file each: whose they are when they are back, and which are kept."""

from __future__ import annotations

import os
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent_eval_action.environments.build import keep, restore
from agent_eval_action.folders import OutputFolder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")

NAME = "0123abcd"
MONTH_S = 31 * 86_400


@pytest.fixture
def cache(tmp_path: Path) -> OutputFolder:
    return OutputFolder.at(tmp_path / "cache")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where environments are restored to: every uid may pass through, as in the container."""
    for place in (tmp_path, *tmp_path.parents[:3]):
        place.chmod(place.stat().st_mode | 0o011)
    place = tmp_path / "environments"
    place.mkdir(mode=0o711)
    return place


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A small environment, parts of it somebody else's and open to all."""
    made = tmp_path / "made" / NAME
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python").write_text("an interpreter")
    module = made / "lib" / "module.py"
    module.parent.mkdir()
    module.write_text("x = 1\n")
    os.utime(module, (1_000_000_000, 1_000_000_000))
    for path in (module.parent, module):
        os.chown(path, 1001, 1001)
        path.chmod(0o6777)
    return made


def archive(cache: OutputFolder, name: str, age_s: float) -> Path:
    """An empty archive that was last used then."""
    path = cache.path / f"{name}.tar"
    path.touch()
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_what_is_restored_is_what_was_kept_and_only_root_can_change_it(
    cache: OutputFolder, folder: Path, environment: Path
) -> None:
    keep(environment, cache)
    assert restore(cache, NAME, folder)
    module = folder / NAME / "lib" / "module.py"
    assert module.read_text() == "x = 1\n"
    assert module.stat().st_mtime == 1_000_000_000
    for path in (folder / NAME, *(folder / NAME).rglob("*")):
        assert path.stat().st_uid == path.stat().st_gid == 0
        assert not path.stat().st_mode & 0o6022, path
    assert [path.name for path in folder.iterdir()] == [NAME]


def test_an_environment_that_two_ask_for_is_extracted_once(
    cache: OutputFolder, folder: Path, environment: Path
) -> None:
    keep(environment, cache)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: (restore(cache, NAME, folder), (folder / NAME).stat().st_ino), range(8)))
    assert set(found) == {(True, (folder / NAME).stat().st_ino)}


@pytest.mark.parametrize("broken", ["no archive", "no tar", "no interpreter"])
def test_what_cannot_be_restored_is_built_again_and_leaves_nothing(
    cache: OutputFolder, folder: Path, environment: Path, broken: str
) -> None:
    cache.make()
    if broken == "no tar":
        (cache.path / f"{NAME}.tar").write_bytes(b"no archive" * 1_000)
    if broken == "no interpreter":
        (environment / "bin" / "python").unlink()
        (environment / "bin" / "python").symlink_to("/opt/python-that-was-downloaded")
        keep(environment, cache)
    assert not restore(cache, NAME, folder)
    assert not list(folder.iterdir())


def link(name: str, to: str) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = tarfile.SYMTYPE, to
    return made


def device(name: str) -> tarfile.TarInfo:
    """The machine's memory, as a file."""
    made = tarfile.TarInfo(name)
    made.type, made.devmajor, made.devminor, made.mode = tarfile.CHRTYPE, 1, 1, 0o666
    return made


@pytest.mark.parametrize("planted", ["../x", "/{target}/x", "env/link/x", "device"])
def test_an_archive_makes_nothing_outside_of_its_environment_and_no_device(
    cache: OutputFolder, folder: Path, tmp_path: Path, planted: str
) -> None:
    cache.make()
    target = tmp_path / "target"
    target.mkdir(mode=0o755)
    with tarfile.open(cache.path / f"{NAME}.tar", "w") as made:
        made.addfile(link("env/bin/python", "/bin/sh"))
        made.addfile(link("env/link", str(target)))
        name = planted.format(target=target)
        made.addfile(device("env/device") if planted == "device" else tarfile.TarInfo(name))
    restore(cache, NAME, folder)
    assert not list(target.iterdir())
    assert not [path for path in folder.rglob("*") if path.is_char_device()]
    assert {path.name for path in folder.iterdir()} <= {NAME}


def test_what_no_run_asked_for_in_a_month_is_kept_no_longer(
    cache: OutputFolder, folder: Path, environment: Path
) -> None:
    keep(environment, cache)
    used = cache.path / f"{NAME}.tar"
    os.utime(used, (time.time() - MONTH_S,) * 2)
    unused, recent = archive(cache, "unused", MONTH_S), archive(cache, "recent", MONTH_S / 2)
    assert restore(cache, NAME, folder)
    keep(environment.rename(environment.with_name("new")), cache)
    assert used.exists()
    assert recent.exists()
    assert not unused.exists()
