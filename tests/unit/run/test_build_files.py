"""What an agent's environment depends on: a change of any of it runs the agent, a change of nothing of it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_eval_action.run.affected import BuildFiles

HOME = "services/bot/agent"


def depends(root: Path, changed: str, **files: str) -> bool:
    for name, text in {f"{HOME}/agent.py": "", "libs/a/pyproject.toml": "", "libs/b/b.py": "", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return BuildFiles.read(root / HOME, root).has(root / changed)


@pytest.mark.parametrize(
    "name", ["uv.toml", "uv.lock", "pdm.lock", "constraints.txt", "constraints-3.12.txt", "requirements-dev.in", ".env"]
)
@pytest.mark.parametrize(("folder", "counts"), [("services/bot", True), (".", True), ("services/other", False)])
def test_a_lock_or_a_setting_counts_beside_the_agent_and_above_it(
    tmp_path: Path, name: str, folder: str, counts: bool
) -> None:
    assert depends(tmp_path, f"{folder}/{name}") is counts


PYPROJECT, REQUIREMENTS = "services/bot/pyproject.toml", "services/bot/requirements.txt"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (PYPROJECT, '[tool.uv.sources]\na = {path = "../../libs/a", editable = true}\n'),
        (PYPROJECT, '[tool.uv.sources]\na = [{path = "../../libs/a", marker = "x"}]\n'),
        ("pyproject.toml", '[tool.uv.workspace]\nmembers = ["libs/*"]\n'),
        (PYPROJECT, '[tool.poetry.dependencies]\na = {path = "../../libs/a", develop = true}\n'),
        (PYPROJECT, '[tool.poetry.group.dev.dependencies]\na = {path = "../../libs/a"}\n'),
        (PYPROJECT, '[project]\ndependencies = ["a @ file:../../libs/a"]\n'),
        ("services/bot/uv.lock", '[[package]]\nname = "a"\nsource = {editable = "../../libs/a"}\n'),
        ("services/bot/uv.lock", '[[package]]\nname = "a"\nsource = {directory = "../../libs/a"}\n'),
        (REQUIREMENTS, "httpx==1\n-e ../../libs/a[extra] # ours\n"),
        (REQUIREMENTS, "--editable=../../libs/a\n"),
        (REQUIREMENTS, "../../libs/a ; python_version > '3'\n"),
        (REQUIREMENTS, "a @ file:../../libs/a\n"),
        (REQUIREMENTS, "-r ../../shared/base.txt\n"),
    ],
)
def test_a_folder_it_installs_from_counts_with_all_that_is_below(tmp_path: Path, file: str, text: str) -> None:
    files = {file: text, "shared/base.txt": "-e ../libs/a\n"}
    assert depends(tmp_path, "libs/a/src/a/deep.py", **files)
    assert not depends(tmp_path, "libs/other/x.py", **files) or "members" in text


def test_a_file_that_requirements_include_counts_wherever_it_lies_and_whatever_it_is_called(tmp_path: Path) -> None:
    files = {REQUIREMENTS: "-c ../../shared/pins.list\nhttpx\n", "shared/pins.list": "httpx==1\n"}
    assert depends(tmp_path, "shared/pins.list", **files)
    assert not depends(tmp_path, "shared/other.list", **files)


def test_what_a_dependency_is_installed_from_counts_too(tmp_path: Path) -> None:
    files = {
        REQUIREMENTS: "-e ../../libs/a\n",
        "libs/a/pyproject.toml": '[tool.uv.sources]\nb = {path = "../b"}\n',
        # and a circle ends
        "libs/b/pyproject.toml": '[tool.uv.sources]\na = {path = "../a"}\n',
    }
    assert depends(tmp_path, "libs/b/b.py", **files)


@pytest.mark.parametrize("text", ["[tool.uv\n", "[tool]\nuv = 1\n", "[project]\ndependencies = 3\n", "\x00"])
def test_files_that_cannot_be_read_name_nothing(tmp_path: Path, text: str) -> None:
    assert not depends(tmp_path, "libs/a/a.py", **{PYPROJECT: text, "services/bot/uv.lock": text})


def test_a_package_that_is_not_in_the_checkout_is_none_of_it(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    assert not depends(
        root, "libs/b/b.py", **{REQUIREMENTS: "-e /\n-e ../../..\n-e .\nhttpx\nhttps://x.invalid/libs\n"}
    )
