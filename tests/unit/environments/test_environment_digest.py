"""What two trees must agree on to share an environment: all that decides what is installed in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_eval_action.environments.lock import LockFile

VIRTUAL = '[[package]]\nname = "agent"\nsource = { virtual = "." }\n'
REMOTE = '[[package]]\nname = "a"\nsource = { registry = "https://pypi.org/simple" }\n'


def name(root: Path, files: Mapping[str, str], environ: Mapping[str, str] | None = None, lock: str = "") -> str:
    """The name of the environment of a tree with these files, whose project is the folder ``team``."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    lock = lock or next(path for path in files if path.startswith("team/"))
    return LockFile(root / lock, root).digest(environ or {})


@pytest.mark.parametrize(
    "files",
    [
        {"team/requirements.txt": "a==1 --hash=sha256:00\n"},
        {"team/pyproject.toml": "[project]\nname = 'x'\ndependencies = ['a']\n[tool.ruff]\nline-length = 9\n"},
        {"team/uv.lock": VIRTUAL + REMOTE, "team/pyproject.toml": "[tool.uv]\npackage = false\n"},
    ],
)
def test_trees_that_need_the_same_packages_share_an_environment(tmp_path, files):
    assert name(tmp_path / "here", files) == name(tmp_path / "there", files)


@pytest.mark.parametrize(
    "files",
    [
        {"team/requirements.txt": "./evil\n"},
        {"team/requirements.txt": "a\n-r ${PLACE}/more.txt\n"},
        {"team/requirements.txt": "a\n", "uv.toml": ""},
        {"team/requirements.txt": "a\n", "team/pyproject.toml": "[tool.uv]\nfind-links = ['./wheels']\n"},
        {"team/requirements.txt": "a\n", "pyproject.toml": "[tool.uv]\ncache-dir = './cache'\n"},
        {"team/requirements.txt": "a\n", "pyproject.toml": "not = toml ="},
        {"team/pyproject.toml": "[project]\nname = 'x'\ndynamic = ['dependencies']\n"},
        {"team/pyproject.toml": "[project]\nname = 'x'\ndependencies = ['a @ file:./a']\n"},
        {"team/uv.lock": '[[package]]\nname = "x"\nsource = { editable = "." }\n'},
        {"team/uv.lock": '[[package]]\nname = "x"\nsource = { directory = "../x" }\n'},
        {"team/uv.lock": '[[package]]\nname = "x"\nsource = { registry = "./wheels" }\n'},
        {"team/uv.lock": '[[package]]\nname = "x"\n'},
        {"team/uv.lock": "not = toml ="},
    ],
)
def test_trees_that_install_something_of_their_own_do_not(tmp_path, files):
    assert name(tmp_path / "here", files) != name(tmp_path / "there", files)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("team/requirements.txt", "a==2\n"),
        ("team/tabbed.txt", "b==2\n"),
        ("team/constraints.txt", "b==2\n"),
        ("team/uv.toml", "index-strategy = 'unsafe-best-match'\n"),
        ("uv.toml", "[pip]\n"),
        ("team/pyproject.toml", "[tool.uv]\noverride-dependencies = ['a==2']\n"),
        ("pyproject.toml", "[tool.uv]\noverride-dependencies = ['a==2']\n"),
        (".python-version", "3.12\n"),
        ("team/.python-versions", "3.12\n"),
        ("team/libs/shared/shared.py", "ANSWER = 2\n"),
    ],
)
def test_every_file_that_decides_what_is_installed_counts(tmp_path, path, text):
    files = {
        "team/requirements.txt": "a\n-r\ttabbed.txt\n-c constraints.txt\n./libs/shared\n",
        "team/tabbed.txt": "b\n",
        "team/constraints.txt": "b==1\n",
        "team/libs/shared/shared.py": "ANSWER = 1\n",
    }
    assert name(tmp_path, files) != name(tmp_path, {**files, path: text}, lock="team/requirements.txt")


def test_packages_of_the_tree_that_are_copied_count_with_their_content(tmp_path):
    files = {"team/uv.lock": '[[package]]\nname = "x"\nsource = { directory = "libs/x" }\n', "team/libs/x/x.py": "1"}
    assert name(tmp_path, files) != name(tmp_path, {**files, "team/libs/x/x.py": "2"})
    linked = {"team/uv.lock": '[[package]]\nname = "x"\nsource = { editable = "." }\n', "team/x.py": "1"}
    assert name(tmp_path, linked) == name(tmp_path, {**linked, "team/x.py": "2"}), "it is read where it lies"


def test_variables_count_and_credentials_do_not(tmp_path):
    files = {"team/requirements.txt": "a\n"}
    url = "https://ci:{}@packages.example/simple"
    first = {"UV_DEFAULT_INDEX": url.format("one"), "UV_INDEX_X_PASSWORD": "one", "UV_CACHE_DIR": "/a"}
    second = {"UV_DEFAULT_INDEX": url.format("two"), "UV_INDEX_X_PASSWORD": "two", "UV_CACHE_DIR": "/b"}
    assert name(tmp_path, files, first) == name(tmp_path, files, second)
    others = [{"UV_DEFAULT_INDEX": "https://evil.example/simple"}, {"UV_TORCH_BACKEND": "x"}, {"GIT_CONFIG_KEY_0": "x"}]
    assert len({name(tmp_path, files, environ) for environ in ({}, first, *others)}) == 5


def test_a_file_named_by_a_variable_counts(tmp_path):
    files, environ = {"team/requirements.txt": "a\n"}, {"UV_CONSTRAINT": str(tmp_path / "limits.txt")}
    (tmp_path / "limits.txt").write_text("b==1\n")
    before = name(tmp_path, files, environ)
    (tmp_path / "limits.txt").write_text("b==2\n")
    assert name(tmp_path, files, environ) != before
