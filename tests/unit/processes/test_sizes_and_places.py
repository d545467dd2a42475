"""How many workers, where they run, and what uv's messages name."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_eval_action.environments.build import failing_package, is_index_unreachable
from agent_eval_action.environments.lock import LockFile, find_lock
from agent_eval_action.environments.runtime import AgentEnvironment, AgentFolder, AgentRuntimeSpec, Launch
from agent_eval_action.environments.variables import install_environ
from agent_eval_action.folders import OutputFolder, folders_upwards
from agent_eval_action.processes.worker import available_cores


@pytest.mark.parametrize(
    ("text", "most"), [("100000 100000", 1), ("50000 100000", 1), ("max 100000", None), ("?", None)]
)
def test_a_containers_quota_counts(tmp_path: Path, text: str, most: int | None) -> None:
    (tmp_path / "cpu.max").write_text(text)
    here = available_cores(tmp_path / "nothing")
    assert available_cores(tmp_path / "cpu.max") == (here if most is None else most)


def test_the_working_directory_is_the_projects(tmp_path: Path) -> None:
    agent = tmp_path / "project" / "src" / "agent"
    agent.mkdir(parents=True)
    place = AgentFolder(agent, tmp_path)
    assert place.cwd == agent.parent
    (tmp_path / "pyproject.toml").touch()
    assert place.cwd == tmp_path
    (tmp_path / "project" / "pyproject.toml").touch()
    assert place.cwd == tmp_path / "project"
    logs = OutputFolder.at(tmp_path)
    spec = AgentRuntimeSpec("agent", agent, tmp_path, logs=logs, cache=logs)
    launch = Launch(spec, place, AgentEnvironment(Path("python"), "configured"))
    assert launch.first_frame()["sys_path"] == [str(agent.parent), str(tmp_path / "project")]
    outside = AgentFolder(agent, tmp_path / "elsewhere")
    assert outside.cwd == agent.parent
    assert folders_upwards(agent, tmp_path / "elsewhere") == [agent]


def test_the_nearest_lock_and_the_best_of_one_folder(tmp_path: Path) -> None:
    agent = tmp_path / "a" / "agent"
    agent.mkdir(parents=True)
    assert find_lock(agent, tmp_path) is None
    for path in (tmp_path / "uv.lock", tmp_path / "a" / "requirements.txt", tmp_path / "a" / "pyproject.toml"):
        path.touch()
        assert find_lock(agent, tmp_path) == LockFile(path, tmp_path)


def test_an_environment_is_named_by_all_that_decides_it(tmp_path: Path) -> None:
    lock = LockFile(tmp_path / "requirements.txt", tmp_path)
    lock.path.write_text("-r more.txt\n-r more.txt\n-r requirements.txt\na\n")
    (tmp_path / "more.txt").write_text("b\n")
    names = [lock.digest({})]
    (tmp_path / "more.txt").write_text("c\n")
    names.append(lock.digest({}))
    (tmp_path / ".python-version").write_text("3.12\n")
    names.append(lock.digest({}))
    names.append(lock.digest({"UV_PYTHON": "3.13"}))
    assert len(set(names)) == 4
    assert lock.digest({"UV_PYTHON": "3.13", "PATH": "/x", "https_proxy": "p"}) == names[-1]


def test_the_install_step_sees_indexes_and_no_tokens() -> None:
    environ = {
        "PATH": "/bin",
        "UV_INDEX_INTERNAL_PASSWORD": "p",
        "PIP_INDEX_URL": "https://pip",
        "PIP_EXTRA_INDEX_URL": "https://more",
        "UV_INDEX": "https://mine",
        "http_proxy": "p",
        "GITHUB_TOKEN": "s",
        "OPENAI_API_KEY": "s",
        "UV_DEFAULT_INDEX": "",
    }
    assert install_environ(environ, {}) == {
        "PATH": "/bin",
        "UV_INDEX_INTERNAL_PASSWORD": "p",
        "UV_DEFAULT_INDEX": "https://pip",
        "UV_INDEX": "https://mine",
        "http_proxy": "p",
    }


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("  × Failed to build `numpy==1.0`\n  ├─▶ The build backend returned an error", "numpy==1.0"),
        ("error: Failed to fetch: `https://x/`\n", "https://x/"),
        ("  × Failed to download and build `mine @ git+https://x`", "mine @ git+https://x"),
        ("  ╰─▶ Because nope was not found in the package registry and you require nope", "nope"),
        ("  ╰─▶ Because there is no version of six==99 and you require six==99", "six==99"),
        ("  ╰─▶ Because only google-adk<=2.13 is available and you require google-adk>=9", "google-adk"),
        ("error: something else", None),
    ],
)
def test_the_package_a_failure_is_about(text: str, name: str | None) -> None:
    assert failing_package(text) == name


@pytest.mark.parametrize(
    ("said", "away"),
    [
        ("error: Failed to fetch: `https://x/simple/a/`\n  Caused by: error sending request for url", True),
        ("  Caused by: client error (Connect)\n  Caused by: dns error: failed to lookup address information", True),
        ("Caused by: HTTP status server error (503 Service Unavailable) for url (https://x/)", True),
        ("Caused by: HTTP status client error (401 Unauthorized) for url (https://x/)", True),
        ("it was ended because it took longer than 1800 s", True),
        ("Because nosuchpackage was not found in the package registry, your requirements are unsatisfiable.", False),
        ("Because there is no version of google-adk==99 we can conclude that ...", False),
        ("Failed to build `broken @ file:///x`: SyntaxError: invalid syntax", False),
    ],
)
def test_an_index_that_is_away_is_distinguished_from_a_lock_that_cannot_be_installed(said: str, away: bool) -> None:
    assert is_index_unreachable(said) is away
