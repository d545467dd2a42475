"""Workers are forked from a process that has imported google-adk, and only that; without it they are started."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.agents.adk import WorkerAgent
from agent_eval_action.environments.runtime import AgentEnvironment, AgentFolder, AgentRuntimeSpec, Launch
from agent_eval_action.folders import OutputFolder
from agent_eval_action.processes.process import (
    CannotForkError,
    ForkedProcess,
    ForkServers,
    ProcessStarter,
    StartedProcess,
    kill_tree,
    start_process,
)
from support.command import agent_eval

ANSWERS_FOR_ANOTHER = """#!{python}
import json, os, socket, sys, time
control = socket.socket(fileno=int(sys.argv[-1]))
body, fds, _, _ = socket.recv_fds(control, 4096, 4)
answers = socket.socket(fileno=fds[3])
answers.send(json.dumps({{"forked": True, "pid": 1}}).encode())
time.sleep(600)
"""


async def who(agent: Any, **request: Any) -> dict[str, int]:
    found: dict[str, int] = json.loads(await agent.answer("who", **request))
    return found


def runs(pid: int) -> bool:
    """Whether it is there, and no zombie, which is another's to reap."""
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "\nState:\tZ" not in status.read_text()


def seen_by(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


async def test_workers_are_forked_from_a_process_that_imports_no_agent(drive, tmp_path: Path, children) -> None:
    folder = tmp_path / "watched"
    folder.mkdir()
    (folder / "agent.py").write_text(
        "import os, pathlib, sys\n"
        "from google.adk.agents import Agent\n"
        "from google.genai import types\n"
        "ready = types.GenerateContentConfig.__pydantic_complete__ and 'google.adk.workflow._workflow' in sys.modules\n"
        f"path = pathlib.Path({str(tmp_path)!r}, f'imported-{{os.getpid()}}')\n"
        "path.write_text(f'{os.getppid()} {ready}')\n"
        "root_agent = Agent(name='watched', model='none')\n"
    )
    async with drive(folder, workers=2, servers=ForkServers()):
        (server,) = children()
        assert "AGENT_EVAL_WORKER" not in seen_by(int(server))
        while len(parents := {path.name: path.read_text() for path in tmp_path.glob("imported-*")}) < 2:  # noqa: ASYNC110 - the agent is ready, and says no more, as soon as one of its workers is
            await asyncio.sleep(0.05)
        assert len(parents) == 2
        assert set(parents.values()) == {f"{server} True"}
        assert f"imported-{server}" not in parents
    assert not children()


async def test_a_server_that_is_killed_is_done_without(drive, children) -> None:
    async with drive("wild", servers=ForkServers()) as agent:
        before = await who(agent)
        os.kill(before["parent"], signal.SIGKILL)
        assert (await who(agent))["pid"] == before["pid"]
        assert (await who(agent, alone=True))["parent"] == os.getpid()
        assert await agent.answer("say still there") == "still there"
    assert not children()
    assert not runs(before["pid"])


@pytest.mark.exhaustive
async def test_a_server_that_is_stopped_is_done_without(drive, monkeypatch) -> None:
    monkeypatch.setattr("agent_eval_action.processes.process._FORK_S", 0.1)
    async with drive("wild", servers=ForkServers()) as agent:
        os.kill((await who(agent))["parent"], signal.SIGSTOP)
        assert (await who(agent, alone=True))["parent"] == os.getpid()


async def test_a_worker_that_dies_says_how(drive) -> None:
    async with drive("wild") as agent:
        assert (await who(agent))["parent"] != os.getpid()
        assert "was killed by SIGKILL" in (await agent.ask("kill")).message
        assert "ended with exit code 3" in (await agent.ask('leave_at_once {"code": 3}')).message


async def test_nothing_is_forked_where_an_import_starts_a_thread(adk213_python: Path, drive, tmp_path: Path) -> None:
    venv = tmp_path / "threads"
    subprocess.run([adk213_python, "-m", "venv", "--without-pip", venv], check=True)  # noqa: ASYNC221 - alone
    (packages,) = venv.glob("lib/python*/site-packages")
    (installed,) = adk213_python.parents[1].glob("lib/python*/site-packages")
    start = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
    (packages / "all.pth").write_text(f"{installed}\n{start}\n")
    async with drive("wild", python=venv) as agent:
        assert (await who(agent))["parent"] == os.getpid()


@pytest.mark.exhaustive
async def test_nothing_is_forked_where_a_variable_brings_modules_along(drive, tmp_path: Path) -> None:
    environ = {key: os.environ[key] for key in ("PATH", "HOME")}
    paths = {"PYTHONPATH": str(tmp_path)}
    async with drive("wild", environ=environ | paths, env_allow=tuple(paths)) as agent:
        assert (await who(agent))["parent"] == os.getpid()


async def test_agents_share_a_server_where_they_are_started_alike(
    adk213_python: Path, folders: Path, tmp_path: Path, children
) -> None:
    servers = ForkServers()

    def agent(**environ: str) -> WorkerAgent:
        ours = OutputFolder.at(tmp_path)
        spec = AgentRuntimeSpec("wild", folders / "wild", folders, ours, ours, adk213_python, environ=environ)
        return WorkerAgent(spec, 1, servers)

    agents = [agent(HOME="/a"), agent(HOME="/a"), agent(HOME="/b")]
    try:
        await asyncio.gather(*(driver.start() for driver in agents))
        assert len(children()) == 2
        await agents[0].stop()
        assert len(children()) == 2
    finally:
        await asyncio.gather(*(driver.stop() for driver in agents))
    assert not children()


async def test_no_more_workers_than_sessions_and_more_when_there_are_more(drive, monkeypatch) -> None:
    monkeypatch.setattr("agent_eval_action.agents.adk.available_cores", lambda: 2)
    async with drive("wild", workers=None, sessions=1) as agent:
        assert len({(await who(agent))["pid"] for _ in range(3)}) == 1
        assert len({answer["pid"] for answer in await asyncio.gather(who(agent), who(agent), who(agent))}) == 2


@pytest.mark.exhaustive
async def test_the_import_is_not_waited_for_when_the_run_ends(
    adk213_python: Path, folders: Path, tmp_path: Path, children
) -> None:
    ours = OutputFolder.at(tmp_path)
    driver = WorkerAgent(AgentRuntimeSpec("wild", folders / "wild", folders, ours, ours, adk213_python))
    driver.prepare()
    assert await driver.wait_for_interpreter() is None
    await driver.stop()
    assert not children()


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    ours = OutputFolder.at(tmp_path)
    spec = AgentRuntimeSpec("agent", tmp_path, tmp_path, ours, ours, environ={"PATH": os.environ["PATH"]})
    return Launch(spec, AgentFolder(tmp_path, tmp_path), AgentEnvironment(tmp_path / "python", "a program of the test"))


@pytest.fixture
def starter(launch: Launch) -> Iterator[ProcessStarter]:
    starter = ForkServers().starter(launch)
    yield starter
    starter.close()


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_a_server_can_name_no_process_but_its_own(launch: Launch) -> None:
    """What it names is killed, by root in the container, and a change decides what is installed in its interpreter."""
    executable(launch.environment.python, ANSWERS_FOR_ANOTHER.format(python=sys.executable))
    starter = ForkServers().starter(launch)
    started = starter.start()
    assert started.process.pid not in {1, os.getpid()}
    assert "agent_eval_worker_main.py" in seen_by(started.process.pid)
    starter.close()
    end(started)


def test_an_interpreter_that_forks_nothing_is_started_itself(launch: Launch, starter: ProcessStarter) -> None:
    executable(launch.environment.python, "#!/bin/sh\n[ $# = 2 ] && exit 1\nexec sleep 600\n")
    started = starter.start()
    assert isinstance(started.process, subprocess.Popen)
    end(started)


def test_an_interpreter_that_is_not_there(starter: ProcessStarter) -> None:
    with pytest.raises(FileNotFoundError):
        starter.start()


def test_a_worker_whose_starter_is_gone_is_killed(adk213_python: Path, launch: Launch) -> None:
    """Even one whose interpreter's lock is held, which cannot notice it by itself."""
    script = f"""
import sys, time
from pathlib import Path
sys.path[:0] = {sys.path!r}
from agent_eval_action.environments.runtime import *
from agent_eval_action.folders import OutputFolder
from agent_eval_action.processes.process import ForkServers
path = Path({str(launch.spec.path)!r})
spec = AgentRuntimeSpec("agent", path, path, OutputFolder.at(path), OutputFolder.at(path))
launch = Launch(spec, AgentFolder(path, path), AgentEnvironment(Path({str(adk213_python)!r}), ""))
starter = ForkServers().starter(launch)
started = starter.start()
print(started.process.pid, flush=True)
time.sleep(600)
"""
    held = launch.spec.path / "held"
    code = f"import ctypes, pathlib\npathlib.Path({str(held)!r}).touch()\nctypes.PyDLL(None).sleep(600)\n"
    (launch.spec.path / "agent.py").write_text(code)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        worker = int(run.stdout.readline())
        while not held.exists():
            time.sleep(0.01)
        run.kill()
    while runs(worker):  # the test's own time limit says when this is too long
        time.sleep(0.01)


def end(started: StartedProcess) -> None:
    kill_tree(started.process, started.marker)
    for fd in (started.read_fd, started.write_fd, started.output_fd):
        os.close(fd)


def test_descriptors_are_closed_when_nothing_starts(launch: Launch) -> None:
    def refuse(*_: object) -> ForkedProcess:
        raise CannotForkError

    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(FileNotFoundError):
        start_process(launch)
    with pytest.raises(CannotForkError):
        start_process(launch, refuse)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("event", ["push", "pull_request"])
def test_the_import_begins_before_all_else_but_not_for_a_change(
    event: str, adk213_python: Path, tmp_path: Path
) -> None:
    agent, shim, log = tmp_path / "work" / "clerk", tmp_path / "python", tmp_path / "starts.log"
    agent.mkdir(parents=True)
    (tmp_path / "work" / ".git").mkdir()
    (agent / "agent.py").write_text(
        "from google.adk.agents import Agent\nroot_agent = Agent(name='clerk', model='none')\n"
    )
    case = {"eval_id": "a", "conversation": [{"user_content": {"parts": [{"text": "hello"}]}}]}
    (agent / "a.evalset.json").write_text(json.dumps({"eval_set_id": "a", "eval_cases": [case]}))
    shim.write_text(f'#!/bin/sh\necho "$1" >> {log}\nexec {adk213_python} "$@"\n')
    shim.chmod(0o755)
    environ = {"PATH": os.environ["PATH"], "GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": event}
    log.touch()
    done = agent_eval("run", "--agent", "clerk", "--python", str(shim), cwd=agent.parent, env=environ)
    starts = ["probe" if start == "-I" else "server" for start in log.read_text().split()]
    # the rules of a change cannot be read here, so nothing of it runs
    assert starts == (["server", "probe"] if event == "push" else []), done.stderr
