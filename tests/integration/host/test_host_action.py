"""host/action.yml step by step, as the runner runs it: real uv, the wheel of this tree, the example's agent."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from support.adk_server_program import write_agent
from support.composite import Ran, job_environ, run_composite

ROOT = Path(__file__).resolve().parents[3]
HOST = ROOT / "host"
ADK = ROOT / ".venvs" / "adk-2.13" / "bin" / "python"
LEFT_BEHIND = shutil.ignore_patterns(".venv", ".adk", "__pycache__", "cache", "out")
UV = str(Path(sys.executable).parent)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def temp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RUNNER_TEMP of one job: the second step of it finds what the first one installed."""
    return tmp_path_factory.mktemp("runner_temp")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    shutil.copytree(ROOT / "examples" / "dice", folder, ignore=LEFT_BEHIND)
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    return folder


@pytest.fixture
def step(workspace: Path, temp: Path) -> Callable[..., Ran]:
    def run(inputs: dict[str, str] | None = None, **more: str) -> Ran:
        environ = job_environ(workspace, temp, **more)
        environ["PATH"] = f"{UV}{os.pathsep}{environ['PATH']}"
        return run_composite(HOST, {"python": str(ADK), **(inputs or {})}, workspace, temp, environ)

    return run


def test_the_example_passes_and_the_outputs_are_those_of_the_run(step, workspace):
    ran = step({"max-time": "5m", "comment": "off"})
    assert ran.code == 0, ran.log
    assert ran.outputs["verdict"] == "pass"
    assert ran.outputs["pass-rate"] == "1.0000"
    for name in ("results", "junit", "comment", "report"):
        assert (workspace / ran.outputs[name]).is_file(), name


@pytest.mark.exhaustive
def test_a_server_that_a_command_starts_runs_on_the_host(step, workspace):
    write_agent(workspace, sys.executable)
    ran = step({"max-time": "5m", "comment": "off"})
    assert ran.code == 0, ran.log
    assert ran.outputs["pass-rate"] == "1.0000"


@pytest.mark.exhaustive
def test_no_other_installation_can_touch_the_tools_files(step, temp):
    ran = step({"max-time": "5m", "comment": "off"})
    assert ran.code == 0, ran.log
    files = [
        path for path in (temp / "agent-eval-tool" / "venv").rglob("*") if path.is_file() and not path.is_symlink()
    ]
    assert len(files) > 1_000
    assert [path for path in files if path.stat().st_nlink > 1] == [], "a hard link into the installer's cache"


@pytest.mark.exhaustive
def test_a_change_for_the_worse_fails_the_step_and_its_outputs_are_there(step, workspace):
    subprocess.run(["git", "apply", "regression/answer-from-memory.patch"], cwd=workspace, check=True)
    ran = step()
    assert ran.code == 1, ran.log
    assert ran.outputs["verdict"] == "fail"
    assert int(ran.outputs["regressions"]) > 0


@pytest.mark.exhaustive
def test_nothing_of_the_jobs_python_or_the_checkout_runs_in_the_tool(step, workspace, tmp_path):
    """A pull request adds modules and settings that an installer, or Python started the wrong way, would obey."""
    for place in (workspace, tmp_path):
        for name in ("venv", "hatchling", "junit_xml", "sitecustomize", "agent_eval_action"):
            (place / f"{name}.py").write_text(f"open({str(tmp_path / 'obeyed')!r}, 'a').write({name!r} + '\\n')\n")
    (workspace / "uv.toml").write_text('index-url = "http://127.0.0.1:9/simple"\n')
    (workspace / ".python-version").write_text("2.7\n")
    ran = step({"tool-python": sys.executable}, PYTHONPATH=str(tmp_path), VIRTUAL_ENV=str(workspace))
    assert ran.outputs["verdict"] == "pass", ran.log
    assert not (tmp_path / "obeyed").exists(), (tmp_path / "obeyed").read_text()


@pytest.mark.exhaustive
def test_a_title_in_an_input_is_data(step, tmp_path):
    """What the runner puts into a shell, a pull request can write."""
    ran = step({"comment-key": f"$(touch {tmp_path}/run) `touch {tmp_path}/run` '; touch {tmp_path}/run; '"})
    assert ran.outputs["verdict"] == "pass", ran.log
    assert not (tmp_path / "run").exists()


def evaluated(text: str, ended: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ steps\.(\S+) \}\}", lambda found: ended[found.group(1)], text)


@pytest.mark.exhaustive
def test_our_own_workflow_runs_on_the_example_as_it_is_written(tmp_path, temp):
    """dogfood.yml, step by step: what it asserts holds, and it would notice if it did not."""
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "examples", checkout / "examples", ignore=LEFT_BEHIND)
    subprocess.run(["git", "init", "--quiet", checkout], check=True)
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "dogfood.yml").read_text())
    environ = job_environ(checkout, temp)
    environ["PATH"] = f"{UV}{os.pathsep}{environ['PATH']}"
    ended: dict[str, str] = {}
    for step in workflow["jobs"]["host"]["steps"]:
        if step.get("uses") == "./host":
            ran = run_composite(HOST, {**step["with"], "python": str(ADK)}, checkout, temp, environ)
            ended |= {f"{step['id']}.outcome": "failure" if ran.code else "success"}
            ended |= {f"{step['id']}.outputs.{name}": value for name, value in ran.outputs.items()}
            assert ran.code == 0 or step.get("continue-on-error"), ran.log
        elif "run" in step:
            own = {name: evaluated(value, ended) for name, value in step.get("env", {}).items()}
            subprocess.run(["bash", "-e", "-c", step["run"]], cwd=checkout, env={**environ, **own}, check=True)
    assert (ended["harmless.outputs.verdict"], ended["worse.outputs.verdict"]) == ("pass", "fail")


def test_a_wrong_input_is_refused_by_its_name(step):
    ran = step({"max-time": "soon"})
    assert ran.code == 2
    assert "INPUT_MAX_TIME" in ran.log


@pytest.mark.parametrize(
    ("inputs", "more", "said"),
    [
        ({}, {"RUNNER_OS": "Windows"}, "agent-eval does not run on Windows"),
        ({"tool-python": "2.7"}, {"UV_PYTHON_DOWNLOADS": "never"}, "the input tool-python names one"),
        ({"tool-index": "http://127.0.0.1:9/simple"}, {"UV_NO_CACHE": "1"}, "The input tool-index names another"),
    ],
)
def test_what_cannot_be_installed_is_one_error_with_a_way_out(step, tmp_path, inputs, more, said):
    (tmp_path / "other").mkdir()
    ran = step(inputs, **more, RUNNER_TEMP=str(tmp_path / "other"), UV_HTTP_RETRIES="0")
    assert ran.code == 2, ran.log
    (error,) = [line for line in ran.log.splitlines() if line.startswith("::error")]
    assert said in error
    assert ran.outputs["verdict"] == ""


@pytest.mark.exhaustive
def test_a_runner_without_uv_gets_one_by_pip(workspace, tmp_path):
    (tmp_path / "rt").mkdir()
    environ = job_environ(workspace, tmp_path / "rt")
    paths = environ["PATH"].split(os.pathsep)
    environ["PATH"] = os.pathsep.join(path for path in paths if not (Path(path) / "uv").exists())
    ran = run_composite(HOST, {"python": str(ADK)}, workspace, tmp_path / "rt", environ)
    assert (tmp_path / "rt" / "agent-eval-tool" / "installer" / "bin" / "uv").exists()
    assert ran.outputs["verdict"] == "pass", ran.log


def test_a_release_installs_the_published_wheel_by_its_hash_and_no_other(workspace, tmp_path):
    tree = tmp_path / "tree"
    (tree / "requirements").mkdir(parents=True)
    shutil.copytree(HOST, tree / "host")
    for name in ("pyproject.toml", "requirements/bootstrap.txt"):
        shutil.copy(ROOT / name, tree / name)
    (tree / "requirements" / "tool.txt").write_text("")
    pinned = "agent-eval-action==0.1.0 --hash=sha256:" + "0" * 64
    (tree / "host" / "wheel.txt").write_text(pinned + "\n")
    dist = tmp_path / "dist"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", dist]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (tmp_path / "rt").mkdir()
    environ = job_environ(workspace, tmp_path / "rt", UV_FIND_LINKS=str(dist), UV_NO_INDEX="1")
    environ["PATH"] = f"{UV}{os.pathsep}{environ['PATH']}"
    ran = run_composite(tree / "host", {}, workspace, tmp_path / "rt", environ)
    assert ran.code == 2
    assert "has the package index this version of it?" in ran.log
    assert "Hash mismatch" in ran.log or "hash" in ran.log.lower()
