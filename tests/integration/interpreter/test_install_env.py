"""Private packages: real uv against an index that asks for a password, which the agent never sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_eval_action.environments.resolve import choose_interpreter
from agent_eval_action.environments.runtime import AgentEnvironment, AgentRuntimeSpec
from agent_eval_action.environments.variables import (
    agent_environ,
    install_environ,
    selected_install_env,
    without_secrets,
)
from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.folders import OutputFolder
from support.package_index import PackageIndex, running, wheel

PASSWORD = "s3cret/word+of%index"  # noqa: S105 - of a server on this machine
TOKEN = "ghs_0123456789abcdef"  # noqa: S105 - of nobody
QUOTED = "s3cret%2Fword%2Bof%25index"


def choose(spec: AgentRuntimeSpec) -> AgentEnvironment:
    return choose_interpreter(spec, spec.locate())


@pytest.fixture
def index(tmp_path: Path) -> Iterator[PackageIndex]:
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel(folder, "google-adk", "9.9.0", {"google/adk/__init__.py": ""})
    wheel(folder, "house-tools", "1.0", {"house_tools.py": ""})
    with running(folder, "reader", PASSWORD) as served:
        yield served


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    folder = tmp_path / "repository" / "agent"
    folder.mkdir(parents=True)
    (folder / "requirements.txt").write_text("google-adk\nhouse-tools\n")
    return folder


@pytest.fixture
def search(tmp_path: Path, agent: Path):
    def make(**install_env: str) -> AgentRuntimeSpec:
        environ = {
            **{name: os.environ[name] for name in ("PATH", "HOME")},
            "UV_PYTHON": sys.executable,
            "UV_CACHE_DIR": str(tmp_path / "uv-cache"),
            "UV_PYTHON_DOWNLOADS": "never",
        }
        return AgentRuntimeSpec(
            "agent",
            agent,
            tmp_path / "repository",
            logs=OutputFolder.at(tmp_path / "logs"),
            cache=OutputFolder.at(tmp_path / "cache"),
            environ=environ,
            install_env=install_env,
        )

    return make


def written(*folders: Path) -> Iterator[tuple[Path, bytes]]:
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                yield path, path.read_bytes()


def test_the_install_step_has_the_password_and_nothing_keeps_it(search, index, tmp_path):
    chosen = choose(search(UV_DEFAULT_INDEX=index.login(QUOTED)))
    done = subprocess.run([str(chosen.python), "-c", "import house_tools"], check=False)
    assert done.returncode == 0
    assert {path for path in index.served if path.endswith(".whl")}
    for path, data in written(tmp_path / "cache", tmp_path / "uv-cache", tmp_path / "repository"):
        assert PASSWORD.encode() not in data, path
        assert QUOTED.encode() not in data, path


def test_a_login_by_name_of_the_index_works_too(search, index):
    given = {
        "UV_INDEX": f"house={index.address}",
        "UV_INDEX_HOUSE_USERNAME": "reader",
        "UV_INDEX_HOUSE_PASSWORD": PASSWORD,
    }
    assert choose(search(**given)).how.startswith("built by uv")


def test_without_it_nothing_is_served_and_the_package_is_named(search, index):
    with pytest.raises(AgentEnvironmentError) as error:
        choose(search(UV_DEFAULT_INDEX=index.address))
    assert not index.served
    assert index.refused
    assert "package google-adk failed" in error.value.message


@pytest.mark.parametrize("sent", [PASSWORD, QUOTED])
def test_a_failing_package_is_named_and_the_password_is_not(search, index, agent, sent):
    (agent / "requirements.txt").write_text("google-adk\nnot-there==1.0\n")
    with pytest.raises(AgentEnvironmentError) as error:
        choose(search(UV_DEFAULT_INDEX=index.login(QUOTED), GIT_TOKEN=sent))
    said = str(error.value)
    assert "package not-there failed" in said
    assert PASSWORD not in said
    assert QUOTED not in said


def test_a_build_that_prints_what_it_sees_does_not_publish_it(search, index, agent, tmp_path):
    """A source package runs code of its own, and uv shows what that printed when it fails."""
    source = tmp_path / "repository" / "chatty"
    source.mkdir()
    (source / "setup.py").write_text(
        "import os, sys\nprint(dict(os.environ), file=sys.stderr)\nprint(os.environ['GIT_TOKEN'])\nsys.exit('no')\n"
    )
    wheel(index.folder, "setuptools", "80.0", {"setuptools/__init__.py": "", "setuptools/build_meta.py": CHATTY})
    (source / "pyproject.toml").write_text(
        '[project]\nname = "chatty"\nversion = "1"\n[build-system]\nrequires = ["setuptools"]\n'
        'build-backend = "setuptools.build_meta"\n'
    )
    (agent / "requirements.txt").write_text("google-adk\n../chatty\n")
    with pytest.raises(AgentEnvironmentError) as error:
        choose(search(UV_DEFAULT_INDEX=index.login(QUOTED), GIT_TOKEN=TOKEN))
    said = str(error.value)
    assert "the token is ***" in said, said
    assert TOKEN not in said
    assert PASSWORD not in said
    assert QUOTED not in said


CHATTY = """
import os
def get_requires_for_build_wheel(config_settings=None):
    return []
def build_wheel(directory, config_settings=None, metadata_directory=None):
    raise SystemExit("the token is " + os.environ["GIT_TOKEN"] + " and " + os.environ["UV_DEFAULT_INDEX"])
prepare_metadata_for_build_wheel = build_wheel
"""


def test_a_build_asks_nobody_about_what_it_was_not_given():
    given = selected_install_env({"TOKEN": None, "MISSING": None, "SET": "x"}, {"TOKEN": "t", "OTHER": "o"})
    assert given == {"TOKEN": "t", "SET": "x"}
    seen = install_environ({"OTHER": "o", "GITHUB_TOKEN": "g", "UV_INDEX": "u"}, given)
    assert seen == {"TOKEN": "t", "SET": "x", "UV_INDEX": "u"}


def test_the_agent_does_not_see_it(search):
    assert "GIT_TOKEN" not in agent_environ({**search().environ, "GIT_TOKEN": "t"})


def test_what_is_said_keeps_what_is_no_secret():
    seen = {
        "UV_DEFAULT_INDEX": "https://me:pass%40word@packages.example/simple",
        "GIT_CONFIG_COUNT": "1",
        "A_TOKEN": "abcdefgh",
    }
    text = "401 for https://me:pass%40word@packages.example/simple (pass@word, abcdefgh), 1 of 1, https://u@host/x"
    assert json.dumps(without_secrets(text, seen)).count("***") == 4
    assert "packages.example/simple" in without_secrets(text, seen)
    assert "1 of 1" in without_secrets(text, seen)
    assert "pass@word" not in without_secrets(text, seen)


def test_an_environment_whose_python_is_gone_is_built_again(search, index):
    """A cache that was brought back to another machine holds no Python that uv had downloaded there."""
    first = choose(search(UV_DEFAULT_INDEX=index.login(QUOTED)))
    for link in first.python.parent.glob("python*"):
        link.unlink()
    (first.python).symlink_to("/nowhere/python")
    again = choose(search(UV_DEFAULT_INDEX=index.login(QUOTED)))
    assert again.how.startswith("built by uv")
    assert subprocess.run([str(again.python), "-c", "import house_tools"], check=False).returncode == 0


def test_a_package_of_a_private_git_repository_is_fetched_by_an_address_with_a_token(search, index, agent, tmp_path):
    """The recipe of docs/credentials.md: git takes another address for the one in the lock, from variables alone."""
    repository = tmp_path / "house-git"
    repository.mkdir()
    (repository / "pyproject.toml").write_text(
        '[project]\nname = "house-git"\nversion = "1"\n'
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (repository / "backend.py").write_text(BACKEND)
    author = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    for command in (["init", "--quiet", "-b", "main"], ["add", "."], [*author, "commit", "--quiet", "-m", "x"]):
        subprocess.run(["git", "-C", repository, *command], check=True)
    (agent / "requirements.txt").write_text("google-adk\nhouse-git @ git+https://git.invalid/house-git@main\n")
    given = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{tmp_path}/.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://git.invalid/",
    }
    chosen = choose(search(UV_DEFAULT_INDEX=index.login(QUOTED), **given))
    assert subprocess.run([str(chosen.python), "-c", "import house_git"], check=False).returncode == 0


BACKEND = """
import zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "house_git-1-py3-none-any.whl"
    with zipfile.ZipFile(directory + "/" + name, "w") as wheel:
        wheel.writestr("house_git.py", "")
        wheel.writestr("house_git-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: house-git\\nVersion: 1\\n")
        tags = "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr("house_git-1.dist-info/WHEEL", tags)
        wheel.writestr("house_git-1.dist-info/RECORD", "")
    return name
"""
