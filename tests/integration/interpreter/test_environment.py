"""Which interpreter an agent gets: real virtual environments, real uv, packages from a folder instead of a network."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from agent_eval_action.environments import build
from agent_eval_action.environments.build import uv_binary
from agent_eval_action.environments.lock import LockFile
from agent_eval_action.environments.resolve import choose_interpreter
from agent_eval_action.environments.runtime import AgentEnvironment, AgentRuntimeSpec
from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.folders import OutputFolder


def choose(spec: AgentRuntimeSpec, given_up: threading.Event | None = None) -> AgentEnvironment:
    return choose_interpreter(spec, spec.locate(), given_up)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder of packages with a google-adk that is only big enough to be found."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel(folder, "google-adk", "9.9.0", {"google/adk/__init__.py": ""})
    entry = {"greeter-1.0.dist-info/entry_points.txt": "[console_scripts]\ngreet = greeter:greet\n"}
    wheel(folder, "greeter", "1.0", {"greeter.py": "def greet():\n    print('hello')\n", **entry})
    return folder


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    plain = name.replace("-", "_")
    info = f"{plain}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{plain}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    folder = tmp_path / "repository" / "team" / "agent"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def search(tmp_path: Path, agent: Path, wheels: Path):
    def make(python: Path | None = None, **environ: str) -> AgentRuntimeSpec:
        offline = {"UV_FIND_LINKS": str(wheels), "UV_NO_INDEX": "1", "UV_PYTHON": sys.executable, "UV_OFFLINE": "1"}
        inherited = {name: os.environ[name] for name in ("PATH", "HOME")}
        own_cache = {"UV_CACHE_DIR": str(tmp_path / "uv-cache"), "UV_PYTHON_DOWNLOADS": "never"}
        environ = {**inherited, **own_cache, **offline, **environ}
        logs, cache = OutputFolder.at(tmp_path / "logs"), OutputFolder.at(tmp_path / "cache")
        return AgentRuntimeSpec("agent", agent, tmp_path / "repository", logs, cache, python, environ=environ)

    return make


def venv(place: Path, wheels: Path, *packages: str) -> Path:
    uv = uv_binary(os.environ)
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, place / ".venv"], check=True)
    if packages:
        command = [uv, "pip", "install", "-q", "--no-index", "--find-links", wheels, *packages]
        subprocess.run([*command, "--python", place / ".venv" / "bin" / "python"], check=True)
    return place / ".venv"


def test_the_configured_interpreter(search, wheels: Path, tmp_path: Path) -> None:
    made = venv(tmp_path / "elsewhere", wheels, "google-adk")
    for python in (made, made / "bin" / "python"):
        found = choose(search(python))
        assert found.python == made / "bin" / "python"
        assert found.how == f"configured: {python}"
    with pytest.raises(AgentEnvironmentError, match="google-adk is not installed in it"):
        choose(search(Path(sys.executable).resolve()))
    with pytest.raises(AgentEnvironmentError, match="there is no interpreter at"):
        choose(search(tmp_path / "nothing"))


def test_the_nearest_venv_that_works(search, agent: Path, wheels: Path) -> None:
    outer = venv(agent.parents[1], wheels, "google-adk")
    venv(agent.parent, wheels)
    broken = agent / ".venv" / "bin"
    broken.mkdir(parents=True)
    (broken / "python").symlink_to("/opt/hostedtoolcache/Python/3.12.1/x64/bin/python")
    found = choose(search())
    assert found.python == outer / "bin" / "python"
    assert found.how == (
        "found .venv; "
        "team/agent/.venv was passed over: its interpreter is missing (was it made on another machine?); "
        "team/.venv was passed over: google-adk is not installed in it"
    )


def test_no_venv_of_the_workspaces_neighbours(search, tmp_path: Path, wheels: Path) -> None:
    venv(tmp_path, wheels, "google-adk")
    with pytest.raises(AgentEnvironmentError, match="no Python environment with google-adk for the agent team/agent"):
        choose(search())


def test_built_from_requirements_once(search, agent: Path, tmp_path: Path) -> None:
    (agent.parent / "more.txt").write_text("greeter\n")
    (agent.parent / "requirements.txt").write_text("google-adk\n-r more.txt\n")
    with ThreadPoolExecutor(2) as pool:
        racing = list(pool.map(choose, [search(), search()]))
    assert racing[0].python == racing[1].python
    assert any(found.how.startswith("built by uv from team/requirements.txt (") for found in racing)
    assert [place.name for place in (tmp_path / "cache").iterdir()] == [racing[0].python.parents[1].name]
    script = "import greeter, google.adk, sys; print(sys.prefix)"
    said = subprocess.run([racing[0].python, "-c", script], check=True, capture_output=True, text=True).stdout
    assert Path(said.strip()) == racing[0].python.parents[1]
    # A script names its interpreter, and the folder had another name when it was written.
    assert subprocess.run([racing[0].python.with_name("greet")], check=True, capture_output=True).stdout == b"hello\n"
    assert choose(search()).how.startswith("cached by uv from team/requirements.txt (")
    (agent.parent / "more.txt").write_text("greeter==1.0\n")
    assert choose(search()).python != racing[0].python


def test_built_from_pyproject_and_from_its_lock(search, agent: Path) -> None:
    (agent / "pyproject.toml").write_text(
        '[project]\nname = "demo"\nversion = "1"\nrequires-python = ">=3.11"\n'
        'dependencies = ["google-adk", "greeter"]\n'
    )
    assert "from team/agent/pyproject.toml" in choose(search()).how
    env = dict(search().environ)
    subprocess.run([uv_binary(env), "lock", "-q"], check=True, cwd=agent, env=env)
    found = choose(search())
    assert "built by uv from team/agent/uv.lock" in found.how
    assert not (agent / ".venv").exists()
    subprocess.run([found.python, "-c", "import greeter"], check=True)


def test_pips_settings_stand_for_uvs(search, agent: Path, wheels: Path) -> None:
    (agent / "requirements.txt").write_text("google-adk\n")
    where = search(PIP_FIND_LINKS=str(wheels))
    environ = {name: value for name, value in where.environ.items() if name != "UV_FIND_LINKS"}
    assert choose(replace(where, environ=environ)).how.startswith("built by uv")


def test_a_package_nobody_has_is_named(search, agent: Path, tmp_path: Path) -> None:
    (agent / "requirements.txt").write_text("google-adk\nno-such-package-anywhere==3\n")
    with pytest.raises(AgentEnvironmentError) as caught:
        choose(search())
    assert "package no-such-package-anywhere failed" in caught.value.message
    assert "requirements.txt" in caught.value.message
    assert "no-such-package-anywhere" in (caught.value.hint or "")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_lock_without_google_adk(search, agent: Path) -> None:
    (agent / "requirements.txt").write_text("greeter\n")
    with pytest.raises(AgentEnvironmentError, match="google-adk is not installed in it"):
        choose(search())


def test_a_build_can_be_given_up(search, agent: Path, tmp_path: Path) -> None:
    source = tmp_path / "endless"
    _endless_build(agent, source)
    given_up = threading.Event()
    threading.Thread(target=_give_up_when_begun, args=(source / "begun", given_up), daemon=True).start()
    with pytest.raises(AgentEnvironmentError, match="uv could not build"):
        choose(search(), given_up)


def _endless_build(agent: Path, source: Path) -> None:
    """A source package whose build never ends, as the agent's requirement."""
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "endless"\nbackend-path = ["."]\n'
        '[project]\nname = "endless"\nversion = "1"\ndynamic = ["dependencies"]\n'
    )
    (source / "endless.py").write_text("import time\nopen('begun', 'w').close()\ntime.sleep(600)\n")
    (agent / "requirements.txt").write_text(str(source) + "\n")


def test_a_build_that_hangs_is_ended(search, agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "LONGEST_INSTALL_S", 3.0)
    _endless_build(agent, tmp_path / "endless")
    with pytest.raises(AgentEnvironmentError) as refused:
        choose(search())
    assert "it was ended because it took longer than 3 s" in (refused.value.hint or "")


def _give_up_when_begun(begun: Path, given_up: threading.Event) -> None:
    while not begun.exists():
        given_up.wait(0.05)
    given_up.set()


def old_adk(wheels: Path, version: str = "1.4.2") -> None:
    (wheels / "google_adk-9.9.0-py3-none-any.whl").unlink()
    wheel(wheels, "google-adk", version, {"google/adk/__init__.py": ""})


def test_the_activated_environment_is_taken_where_no_venv_lies_beside_the_agent(
    search, agent: Path, wheels: Path, tmp_path: Path
) -> None:
    active = venv(tmp_path / "elsewhere", wheels, "google-adk")
    (agent.parent / "requirements.txt").write_text("google-adk\n")
    found = choose(search(VIRTUAL_ENV=str(active)))
    assert found.python == active / "bin" / "python"
    assert found.how == f"the activated virtual environment {active}"

    near = venv(agent, wheels, "google-adk")
    found = choose(search(VIRTUAL_ENV=str(active)))
    assert found.python == near / "bin" / "python"
    assert f"the activated {active} was passed over: team/agent/.venv lies beside the agent" in found.how
    assert choose(search(VIRTUAL_ENV=str(near))).how == "found team/agent/.venv"


def test_an_activated_environment_without_adk_is_passed_over_with_a_message(
    search, agent: Path, wheels: Path, tmp_path: Path
) -> None:
    active = venv(tmp_path / "elsewhere", wheels)
    (agent.parent / "requirements.txt").write_text("google-adk\n")
    found = choose(search(VIRTUAL_ENV=str(active)))
    assert found.how.startswith("built by uv from team/requirements.txt")
    assert f"{active} was passed over: google-adk is not installed in it" in found.how


@pytest.mark.parametrize("name", ["poetry.lock", "pdm.lock", "Pipfile.lock"])
def test_another_tools_lock_is_refused_with_a_message_unless_it_was_exported(search, agent: Path, name: str) -> None:
    (agent.parent / "pyproject.toml").write_text(
        "[project]\nname = 'x'\nversion = '1'\ndependencies = ['google-adk']\n"
    )
    (agent.parent / name).write_text("")
    with pytest.raises(AgentEnvironmentError) as caught:
        choose(search())
    assert caught.value.message == f"team/{name} pins the agent's packages, and agent-eval cannot install from it"
    assert "requirements.txt" in (caught.value.hint or "")
    (agent.parent / "requirements.txt").write_text("google-adk\n")
    assert choose(search()).how.startswith("built by uv from team/requirements.txt")


def test_a_venv_beside_another_tools_lock_is_taken(search, agent: Path, wheels: Path) -> None:
    (agent.parent / "poetry.lock").write_text("")
    near = venv(agent.parent, wheels, "google-adk")
    assert choose(search()).python == near / "bin" / "python"


def test_an_old_google_adk_is_reported_before_anything_is_built_or_imported(
    search, agent: Path, wheels: Path, tmp_path: Path
) -> None:
    (agent.parent / "requirements.txt").write_text("greeter\ngoogle-adk[eval]==1.4.2 ; python_version > '3'\n")
    with pytest.raises(AgentEnvironmentError) as caught:
        choose(search())
    assert caught.value.message == (
        "team/requirements.txt pins google-adk 1.4.2, which is too old: 1.10 or newer is needed"
    )
    assert not (tmp_path / "cache").exists()
    old_adk(wheels)
    venv(agent, wheels, "google-adk")
    with pytest.raises(AgentEnvironmentError, match=r"team/agent/\.venv cannot run it: google-adk 1\.4\.2"):
        choose(search())
    with pytest.raises(AgentEnvironmentError, match=r"cannot run the agent: google-adk 1\.4\.2, which is too old"):
        choose(search(agent / ".venv"))


def test_building_is_reported_before_it_begins_and_only_then(search, agent: Path) -> None:
    (agent.parent / "requirements.txt").write_text("google-adk\n# a comment\ngreeter\n")
    said: list[str] = []
    options = replace(search(), log=lambda text, _level: said.append(text))
    choose(options)
    assert said == [
        "builds the agent's environment from team/requirements.txt (2 packages); this is done once for these files"
    ]
    choose(options)
    assert len(said) == 1


def test_a_uv_lock_says_its_packages_and_versions(tmp_path: Path) -> None:
    path = tmp_path / "uv.lock"
    entries = [("google-adk", "1.4.2"), ("google-adk-extra", "2.0"), ("greeter", "1.0")]
    path.write_text("version = 1\n\n" + "\n".join(f'[[package]]\nname = "{n}"\nversion = "{v}"\n' for n, v in entries))
    lock = LockFile(path, tmp_path)
    assert lock.packages() == 3
    assert lock.pinned("google-adk") == "1.4.2"
    assert lock.pinned("nothing") == ""
