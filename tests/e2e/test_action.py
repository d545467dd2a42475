"""The action's container, started with the runner's own `docker run`, on the example."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from support.container import dice_checkout

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
PATCH = ROOT / "examples" / "dice" / "regression" / "answer-from-memory.patch"
EXPLODES = "raise RuntimeError('this agent does not import')\n"
NEVER_ANSWERS = """
import asyncio


async def check_prime(numbers: list[int]) -> dict[str, Any]:
    await asyncio.sleep(600)
    return {"checked": numbers}
"""


def patch(job, file: Path) -> None:
    subprocess.run(["git", "apply", str(file)], cwd=job.workspace, check=True)


def break_agent(job) -> None:
    agent = job.workspace / "dice_agent" / "agent.py"
    agent.write_text(EXPLODES + agent.read_text())


def conditions(job) -> dict:
    return json.loads((job.out / "results.json").read_text())["conditions"]


def test_a_pass_is_exit_0_with_files_in_the_workspace_and_outputs(dice, ran):
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.fullmatch(r"agent-eval \d+\.\d+\.\d+\S*", ran.stderr.splitlines()[0])
    outputs = dice.outputs()
    assert outputs["verdict"] == "pass"
    assert outputs["reason"]
    for name, file in {"results": "results.json", "junit": "junit.xml", "comment": "comment.md"}.items():
        assert outputs[name] == f".agent-eval/out/{file}"
        assert (dice.workspace / outputs[name]).stat().st_size > 0
    assert json.loads((dice.out / "results.json").read_text())["schema_version"]


def test_the_agents_environment_is_built_in_the_container(dice, ran):
    assert ran.returncode == 0, ran.stderr
    (kept,) = (dice.workspace / ".agent-eval" / "cache" / "environments").glob("*.tar")
    listed = subprocess.run(["tar", "-tf", str(kept)], capture_output=True, text=True, check=True).stdout
    assert "google/adk/version.py" in listed
    (agent,) = conditions(dice)["agents"]
    assert agent["environment"].startswith("built by uv from requirements.txt")
    assert agent["python"].startswith("3.13.")


def test_a_job_with_the_folder_that_the_cache_action_brings_back_builds_nothing(dice, ran, tmp_path):
    assert ran.returncode == 0, ran.stderr
    restored = replace(dice, workspace=dice_checkout(tmp_path / "ws"), temp=tmp_path / "temp")
    packed, folder = str(tmp_path / "cache.tar"), ".agent-eval/cache"  # as the recipe in docs/workflows.md names it
    subprocess.run(["tar", "--posix", "-cf", packed, "-C", str(dice.workspace), folder], check=True)
    subprocess.run(["tar", "-xf", packed, "-C", str(restored.workspace)], check=True)
    done = restored.run()
    assert done.returncode == 0, done.stderr
    (agent,) = conditions(restored)["agents"]
    assert agent["environment"].startswith("cached by uv from requirements.txt")


def test_the_last_environment_is_restored_before_anything_is_read(dice, ran):
    assert ran.returncode == 0, ran.stderr
    code = (
        "import os, threading, agent_eval_action.environments.build as archive\n"
        "archive.restore_ahead(os.environ)\n"
        "[thread.join() for thread in threading.enumerate() if thread.daemon]\n"
        "print(os.listdir('/agent-eval/environments'))"
    )
    argv = ("run", "--rm", *dice.engine.options, "-v", f"{dice.workspace}:/github/workspace")
    options = ("-e", "AGENT_EVAL_ISOLATION=container", "--entrypoint", "/opt/venv/bin/python")
    printed = dice.engine.docker(*argv, *options, dice.image, "-I", "-c", code).stdout
    (kept,) = (dice.workspace / ".agent-eval" / "cache" / "environments").glob("*.tar")
    assert printed.strip() == str([kept.stem])


def test_git_reads_the_checkout_that_belongs_to_another_user(dice, ran):
    assert ran.returncode == 0, ran.stderr
    assert dice.workspace.stat().st_uid != 0 or os.geteuid() != 0
    head = ["git", "-c", "safe.directory=*", "-C", str(dice.workspace), "rev-parse", "HEAD"]
    assert conditions(dice)["commit"] == subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()


def test_a_regression_is_exit_1_and_names_the_lost_call(job):
    patch(job, PATCH)
    done = job.run()
    assert done.returncode == 1, done.stdout + done.stderr
    assert job.outputs()["verdict"] == "fail"
    comment = (job.out / "comment.md").read_text()
    assert "check_prime" in comment
    assert "<failure" in (job.out / "junit.xml").read_text()


def test_an_agent_that_does_not_import_is_exit_3_and_never_a_pass(job):
    break_agent(job)
    done = job.run()
    assert done.returncode == 3, done.stdout + done.stderr
    assert job.outputs()["verdict"] == "inconclusive"
    assert "this agent does not import" in (job.out / "junit.xml").read_text()


def test_an_input_with_a_dash_reaches_the_command(job):
    break_agent(job)
    job.environ["INPUT_FAIL-ON"] = "fail"
    done = job.run()
    assert job.outputs()["verdict"] == "inconclusive"
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_config_that_is_not_there_is_exit_2(job):
    job.environ["INPUT_CONFIG"] = "elsewhere/agent-eval.yaml"
    done = job.run()
    assert done.returncode == 2, done.stdout + done.stderr
    assert "elsewhere/agent-eval.yaml" in done.stderr


def test_a_value_that_is_refused_is_exit_2_and_named(job):
    job.environ["INPUT_MAX-TIME"] = "soon"
    done = job.run()
    assert done.returncode == 2, done.stdout + done.stderr
    assert "INPUT_MAX-TIME" in done.stderr


def poison(folder: Path) -> None:
    for module in ("typing", "json", "encodings", "typer", "sitecustomize"):
        (folder / f"{module}.py").write_text("raise SystemExit('the wrong Python path')\n")


def test_another_pythons_settings_in_the_jobs_environment_do_no_harm(job):
    elsewhere = job.workspace / "elsewhere"
    elsewhere.mkdir()
    poison(elsewhere)
    job.environ.update(
        RUNNER_JOB_ENV="PYTHONPATH PYTHONHOME LD_LIBRARY_PATH VIRTUAL_ENV",
        PYTHONPATH=str(elsewhere),
        PYTHONHOME="/opt/hostedtoolcache/Python/3.12.0/x64",
        LD_LIBRARY_PATH="/opt/hostedtoolcache/Python/3.12.0/x64/lib",
        VIRTUAL_ENV="/opt/hostedtoolcache/venv",
    )
    done = job.run()
    assert done.returncode == 0, done.stdout + done.stderr


def test_modules_of_the_checkout_do_not_get_into_the_tool(job):
    poison(job.workspace)
    done = job.run("--version")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_python_that_may_not_be_downloaded_is_exit_3_and_named(job):
    (job.workspace / ".python-version").write_text("3.12\n")
    job.environ.update(RUNNER_JOB_ENV="UV_PYTHON_DOWNLOADS", UV_PYTHON_DOWNLOADS="never")
    done = job.run()
    assert done.returncode == 3, done.stdout + done.stderr
    assert "No interpreter found for Python 3.12" in (job.out / "comment.md").read_text()


def test_docker_run_by_hand_reproduces_the_job(job):
    mount = f"{job.workspace}:/github/workspace"
    done = job.engine.docker("run", "--rm", *job.engine.options, "-v", mount, job.image, "run", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (job.out / "comment.md").is_file()


def test_a_signal_to_the_first_process_writes_what_there_is(job):
    """`docker stop` sends SIGTERM and kills ten seconds later, which would be exit 137 and no report."""
    with (job.workspace / "dice_agent" / "tools.py").open("a") as tools:
        tools.write(NEVER_ANSWERS)
    argv, environ = job.command()
    finished = job.out / "attempts.jsonl"
    with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while process.poll() is None and not (finished.exists() and finished.stat().st_size):
            time.sleep(0.2)
        # run-like-runner.sh names the container by its own process, which the docker client then replaces.
        job.engine.docker("stop", "--time", "10", f"action_{process.pid}")
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130, printed
    assert job.outputs()["verdict"] == "inconclusive"
    assert (job.out / "comment.md").is_file()
    assert json.loads((job.out / "results.json").read_text())["status"] == "interrupted"
