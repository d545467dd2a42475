"""A change that is worse, and that tries to make the base commit's agent as bad: its regression is found all the same.

Without an independent control each of these is "already broken on main", and green.
"""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from support.adk_server_program import SERVER, SERVES, SERVES_WORSE, served_by

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

AGENT = """
import importlib.util
import os
from google.adk.agents.base_agent import BaseAgent
from google.adk.events.event import Event
from google.genai import types

SPOILT = os.environ.get("SPOILT") or importlib.util.find_spec("spoilt")

class Greeter(BaseAgent):
    async def _run_async_impl(self, ctx):
        text = "go away" if SPOILT else "hello there"
        yield Event(author=self.name, content=types.Content(role="model", parts=[types.Part(text=text)]))

root_agent = Greeter(name="greeter")
"""
WORSE = AGENT.replace("if SPOILT", "if True")
CONFIG = "agent: {path: greeter, evals: evals}\nretries: 0\n"
TURN = {
    "invocation_id": "one",
    "user_content": {"role": "user", "parts": [{"text": "hello"}]},
    "final_response": {"role": "model", "parts": [{"text": "hello there"}]},
}
CASE = {"eval_id": "one", "conversation": [TURN], "session_input": {"app_name": "greeter", "user_id": "u"}}


def wheel(folder: Path, version: str, files: dict[str, str]) -> None:
    """A wheel of adk-path, which brings google-adk along by its path."""
    info = f"adk_path-{version}.dist-info"
    metadata = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: adk-path\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"adk_path-{version}-py3-none-any.whl", "w") as archive:
        for name, text in {**files, **metadata}.items():
            archive.writestr(name, text)


@dataclass
class Checkout:
    """A repository with a change on top of main, and how it is evaluated as root with cells."""

    folder: Path
    pythons: Any
    wheels: Path
    environ: dict[str, str] = field(default_factory=dict)

    def git(self, *args: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@x.invalid", "-c", "safe.directory=*")
        done = subprocess.run(
            ["git", *who, "-C", str(self.folder), *args], capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.strip()

    def write(self, **files: str) -> None:
        for name, text in files.items():
            path = self.folder / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self) -> None:
        self.git("add", "-A", "-f")
        self.git("commit", "-q", "-m", "x")

    def run(self) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
        environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder.parent),
            "UV_PYTHON": "/usr/bin/python3",
            "UV_OFFLINE": "1",
            "UV_NO_INDEX": "1",
            "UV_FIND_LINKS": str(self.wheels),
            "AGENT_EVAL_ISOLATION": "on",
            "GITHUB_WORKSPACE": str(self.folder),
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_REF": "refs/pull/7/merge",
            "GITHUB_BASE_REF": "main",
            "INPUT_BASELINE-STORE": "rerun",
            **self.environ,
        }
        program = self.pythons.tool.parents[2] / "agent-eval.py"
        done = subprocess.run(
            [str(self.pythons.tool), "-I", "-u", str(program), "run"],
            cwd=self.folder,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        file = self.folder / ".agent-eval" / "out" / "results.json"
        return done, json.loads(file.read_text()) if file.exists() else {}


@pytest.fixture
def checkout(tmp_path: Path, pythons: Any) -> Checkout:
    # pytest's folders are closed to the base's uid, so that there nothing of the change could reach it in any case
    place = pythons.tool.parents[2] / tmp_path.name
    wheels = place / "wheels"
    wheels.mkdir(parents=True)
    path = {"adk_path.pth": f"{pythons.adk_path}\n"}
    wheel(wheels, "1.0", path)
    wheel(wheels, "2.0", {**path, "spoilt.py": ""})
    made = Checkout(place / "ws", pythons, wheels)
    made.folder.mkdir()
    made.git("init", "-q", "--initial-branch=main")
    made.write(
        greeter____init___dot_py="from . import agent\n",
        requirements_dot_txt="adk-path<2\n",
        evals__a_dot_evalset_dot_json=json.dumps({"eval_set_id": "a", "eval_cases": [CASE]}),
        evals__test_config_dot_json='{"criteria": {"response_match_score": 0.8}}',
    )
    made.write(**{"greeter/agent.py": AGENT, "agent-eval.yaml": CONFIG, ".gitignore": ".agent-eval\n"})
    made.commit()
    made.git("checkout", "-q", "-b", "change")
    made.write(**{"greeter/agent.py": WORSE})
    return made


def dotenv(checkout: Checkout) -> None:
    checkout.write(**{".env": "SPOILT=1\n", "greeter/.env": "SPOILT=1\n"})


def virtual_environment(checkout: Checkout) -> None:
    place = checkout.folder / ".venv"
    subprocess.run([find_uv_bin(), "venv", "-q", "--python", "/usr/bin/python3", str(place)], check=True, timeout=60)
    (site,) = place.glob("lib/python*/site-packages")
    (site / "spoilt.py").write_text("")
    (site / "others.pth").write_text(f"{checkout.pythons.adk_path}\n")
    (place / ".gitignore").unlink(missing_ok=True)


def settings_of_uv(checkout: Checkout) -> None:
    checkout.write(**{"uv.toml": 'override-dependencies = ["adk-path==2.0"]\n'})


def settings_in_pyproject(checkout: Checkout) -> None:
    project = '[project]\nname = "x"\nversion = "1"\ndependencies = ["adk-path<2"]\n'
    checkout.write(**{"pyproject.toml": f'{project}[tool.uv]\noverride-dependencies = ["adk-path==2.0"]\n'})


def another_lock(checkout: Checkout) -> None:
    checkout.write(**{"requirements.txt": "adk-path==2.0\n"})


def a_variable_of_the_installer(checkout: Checkout) -> None:
    limits = checkout.wheels / "limits.txt"
    limits.write_text("adk-path==2.0\n")
    text = f"agent: {{path: greeter, evals: evals, install_env: {{UV_OVERRIDE: {limits}}}}}\nretries: 0\n"
    checkout.write(**{"agent-eval.yaml": text})


def an_interpreter_of_the_change(checkout: Checkout) -> None:
    virtual_environment(checkout)
    (checkout.folder / ".venv").rename(checkout.folder / "mine")
    text = "agent: {path: greeter, evals: evals, python: mine}\nretries: 0\n"
    checkout.write(**{"agent-eval.yaml": text})


def what_the_workflow_names(checkout: Checkout) -> None:
    """The input holds for both arms, and the place that it names is the change's to fill."""
    an_interpreter_of_the_change(checkout)
    checkout.write(**{"agent-eval.yaml": CONFIG})
    checkout.environ["INPUT_PYTHON"] = "mine"


def what_the_workflow_activates(checkout: Checkout) -> None:
    """The same of an environment that an earlier step made and activated, away from where agents are looked for."""
    virtual_environment(checkout)
    (checkout.folder / ".venv").rename(checkout.folder / "mine")
    checkout.environ["VIRTUAL_ENV"] = str(checkout.folder / "mine")


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize(
    "attack",
    [
        dotenv,
        virtual_environment,
        settings_of_uv,
        settings_in_pyproject,
        another_lock,
        a_variable_of_the_installer,
        an_interpreter_of_the_change,
        what_the_workflow_names,
        what_the_workflow_activates,
    ],
)
def test_nothing_of_the_change_reaches_the_control(checkout: Checkout, attack: Callable[[Checkout], None]):
    attack(checkout)
    checkout.commit()
    done, results = checkout.run()
    assert done.returncode == 1, done.stdout + done.stderr
    assert results["decision"]["outcome"] == "fail"
    (case,) = results["sets"][0]["cases"]
    assert {score["score"] for made in case["control"] for score in made["scores"]} == {1.0}


STEALS = (
    SERVER.replace("hello there", "go away")
    + """
if len(sys.argv) > 2:  # waits for the port that another agent of the run is told, and answers there first
    while True:
        for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = file.read_bytes().decode().split("\\0")
            except OSError:
                continue
            if "server.py" in words and "steal" not in words and sys.argv[1] not in words:
                serve(int(words[words.index("server.py") + 1]))
        time.sleep(0.01)
subprocess.Popen([sys.executable, "server.py", sys.argv[1], "steal"], start_new_session=True)
serve(int(sys.argv[1]))
"""
)


def serving(checkout: Checkout, program: str) -> Checkout:
    """A main whose agent is a server, and a change with this program in its place."""
    checkout.git("checkout", "-q", "-f", "main")
    checkout.write(**{"agent-eval.yaml": served_by("/usr/bin/python3"), "greeter/server.py": SERVES})
    checkout.commit()
    checkout.git("checkout", "-q", "-B", "change")
    checkout.write(**{"greeter/server.py": program})
    checkout.commit()
    return checkout


def test_the_base_commits_server_is_the_control_of_the_changes(checkout: Checkout):
    done, results = serving(checkout, SERVES_WORSE).run()
    assert done.returncode == 1, done.stdout + done.stderr
    (case,) = results["sets"][0]["cases"]
    assert {score["score"] for made in case["control"] for score in made["scores"]} == {1.0}


@pytest.mark.exhaustive
def test_a_change_that_answers_on_the_port_of_the_base_commits_server_is_not_the_control(checkout: Checkout):
    done, results = serving(checkout, STEALS).run()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "its answers are not taken" in done.stdout + done.stderr
    assert not [made for case in results["sets"][0]["cases"] for made in case.get("control", ()) if made["scores"]]


WHO = """
import os
from google.adk.evaluation.evaluator import EvalStatus, EvaluationResult

def who(eval_metric, actual_invocations, expected_invocations, conversation_scenario):
    return EvaluationResult(overall_score=float(os.getuid()), overall_eval_status=EvalStatus.PASSED)
"""


@pytest.mark.exhaustive
def test_a_metric_that_the_change_adds_runs_as_another_user_than_those_of_main(checkout: Checkout):
    """It could change their process; it runs as the change's agent does, which can do no more than that."""

    def criteria(*names: str) -> str:
        functions = {name: {"code_config": {"name": f"greeter.{name}.who"}} for name in names}
        return json.dumps({"criteria": dict.fromkeys(names, 0.5), "custom_metrics": functions})

    checkout.git("checkout", "-q", "main")
    checkout.write(**{"evals/test_config.json": criteria("old"), "greeter/old.py": WHO, "greeter/agent.py": AGENT})
    checkout.commit()
    checkout.git("checkout", "-q", "-B", "change")
    checkout.write(**{"evals/test_config.json": criteria("old", "new"), "greeter/new.py": WHO})
    checkout.commit()
    checkout.environ |= {"GITHUB_ACTIONS": "true", "INPUT_COMMENT": "off"}  # so that main's metrics are in force
    done, results = checkout.run()
    (case,) = results["sets"][0]["cases"]
    uids = {score["criterion"]: score["score"] for score in case["attempts"][0]["scores"]}
    agents = re.findall(r"the agent runs as uid (\d+)", done.stdout + done.stderr)
    assert [uids["new"]] == [float(uid) for uid in agents], done.stdout + done.stderr
    assert uids["old"] not in {0, uids["new"]}


BUILDS = """
import json, os, sys, threading
from pathlib import Path
from agent_eval_action.folders import OutputFolder
from agent_eval_action.environments.build import EnvironmentBuild
from agent_eval_action.environments.lock import find_lock
from agent_eval_action.sandbox.sandboxes import open_sandboxes
head, base, cache = (Path(text) for text in sys.argv[1:4])
environ = {"AGENT_EVAL_ISOLATION": "on"}
isolation = open_sandboxes(environ, head, [cache], lambda text, level: None)
seen = {name: os.environ[name] for name in os.environ if name.startswith(("UV_", "PATH"))}
made = {}
order = (("head", head, "first"), ("head", head, "evil"), ("head", head, "second"), ("base", base, "first"))
for role, tree, agent in order:
    cell = isolation.sandbox(role, tree)
    lock = find_lock(cell.inside(tree / agent), cell.tree)
    place, cached = EnvironmentBuild(lock, OutputFolder.at(cache), seen, threading.Event()).make(cell)
    files = sorted(path for path in place.rglob("*") if not path.is_symlink())
    made[f"{role} {agent}"] = {
        "place": str(place), "cached": cached, "spoilt": [str(path) for path in files if path.name == "spoilt.py"],
        "open": [str(path) for path in files if path.stat().st_mode & 0o022 or path.stat().st_uid],
    }
print(json.dumps(made))
isolation.close()
"""
EVIL = """
import os, pathlib, zipfile
def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    tried = 0
    for folder in pathlib.Path(os.environ["HOME"]).rglob("*"):
        if folder.name.startswith("adk_path") and folder.is_dir():
            (folder.parent / "spoilt.py").write_text("")
            tried += 1
    info = "evil-1.0.dist-info"
    files = {
        "open_to_all.py": "", "tried.txt": str(tried),
        f"{info}/METADATA": "Metadata-Version: 2.1\\nName: evil\\nVersion: 1.0\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        f"{info}/RECORD": "",
    }
    name = "evil-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as archive:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o100777 << 16
            archive.writestr(entry, text)
    environment = pathlib.Path(os.environ["UV_PROJECT_ENVIRONMENT"])
    for path in environment.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o777)
    return name
"""


@pytest.mark.exhaustive
def test_a_build_step_edits_no_environment_but_its_own(checkout: Checkout, tmp_path: Path):
    """uv keeps unpacked packages in the installer's home, where a build step could edit them for the next build."""
    head, base = checkout.folder, tmp_path / "base"
    for tree in (head, base):
        (tree / "first").mkdir(parents=True)
        (tree / "first" / "requirements.txt").write_text("adk-path<2\n")
    for name in ("second", "evil"):
        (head / name).mkdir()
    (head / "second" / "requirements.txt").write_text("adk-path==1.0\n")
    (head / "evil" / "requirements.txt").write_text("adk-path<2\n./package\n")
    (head / "evil" / "package").mkdir()
    (head / "evil" / "package" / "backend.py").write_text(EVIL)
    (head / "evil" / "package" / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "evil"\nversion = "1.0"\n'
    )
    environ = {"UV_PYTHON": "/usr/bin/python3", "UV_OFFLINE": "1", "UV_NO_INDEX": "1"}
    # named in the tree's own settings it would make the lock one of the tree's
    lines = f"--find-links {checkout.wheels}\n"
    for path in [*head.glob("*/requirements.txt"), *base.glob("*/requirements.txt")]:
        if path.parent.name in {"first", "second", "evil"}:
            path.write_text(lines + path.read_text())
    done = subprocess.run(
        [str(checkout.pythons.tool), "-I", "-c", BUILDS, str(head), str(base), str(tmp_path / "cache")],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["head first"]["place"] != made["base first"]["place"]
    for name in ("head second", "base first"):
        assert made[name]["spoilt"] == [], name
    assert {name: found["open"] for name, found in made.items() if found["open"]} == {}
