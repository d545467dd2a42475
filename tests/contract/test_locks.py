"""The locks are what pyproject.toml asks for, and pin by hash without saying where to download from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def entries(lock: Path) -> list[str]:
    """One logical line per requirement, without comments."""
    joined = re.sub(r"\\\n", " ", lock.read_text())
    return [line.strip() for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def pins(lock: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for entry in entries(lock):
        name, _, rest = entry.partition("==")
        found.setdefault(canonicalize_name(name.split("[")[0]), set()).add(rest.split()[0])
    return found


def test_there_is_a_lock_for_each_environment():
    assert [lock.stem for lock in LOCKS] == [
        "a2a",
        "adk-1.10",
        "adk-2.13",
        "agents-cli",
        "bootstrap",
        "dev",
        "peers",
        "tool",
    ]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_requirement_is_one_version_with_hashes(lock):
    for entry in entries(lock):
        assert re.match(r"[A-Za-z0-9._-]+(\[[a-z0-9,_ -]+\])?==[^\s;]+ ", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_no_lock_says_where_it_was_made_or_where_to_download_from(lock):
    text = lock.read_text()
    assert "://" not in text
    assert " @ " not in text
    assert not re.search(r"^\s*(--|-[ifer] )(?!hash)", text, re.MULTILINE)
    assert not re.search(r"# +(from|via) /", text)


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        ("tool", PYPROJECT["project"]["dependencies"]),
        ("dev", PYPROJECT["project"]["dependencies"] + PYPROJECT["dependency-groups"]["dev"]),
        ("bootstrap", ["uv", *PYPROJECT["build-system"]["requires"]]),
    ],
)
def test_a_lock_has_everything_pyproject_asks_for(lock, wanted):
    locked = pins(ROOT / "requirements" / f"{lock}.txt")
    for requirement in map(Requirement, wanted):
        versions = locked.get(canonicalize_name(requirement.name), set())
        assert versions, f"{lock}.txt lacks {requirement}: run `make lock`"
        assert all(requirement.specifier.contains(version) for version in versions), f"{requirement}: {versions}"


def test_the_tool_is_tested_with_the_versions_it_ships_with():
    dev = pins(ROOT / "requirements" / "dev.txt")
    for name, versions in pins(ROOT / "requirements" / "tool.txt").items():
        assert dev.get(name) == versions, name


def test_the_oracles_are_the_versions_their_names_say():
    for version in ("2.13", "1.10"):
        assert pins(ROOT / "requirements" / f"adk-{version}.txt")["google-adk"] == {f"{version}.0"}
