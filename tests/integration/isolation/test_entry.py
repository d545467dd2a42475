"""The first process: what it shows, what it forwards, whom it reaps and ends. As root, where it acts at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent_eval_action.sandbox.container_init import supervision_mode

BEGIN = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
from agent_eval_action.cli import print_step_error
from agent_eval_action.sandbox.container_init import supervise
supervise(print_step_error)
"""
CANARY = "canary-of-the-environment"
WAITING = "print('ready', flush=True)\ntime.sleep(60)\n"


@pytest.fixture
def start(tmp_path: Path):
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED, the first process: it acts as root only")
    started: list[subprocess.Popen[str]] = []

    def begin(program: str, **environ: str) -> subprocess.Popen[str]:
        file = tmp_path / "program.py"
        file.write_text(BEGIN + program)
        process = subprocess.Popen(
            [sys.executable, "-I", "-u", str(file)],
            env={"PATH": "/usr/bin:/bin", "AGENT_EVAL_ISOLATION": "on", "GITHUB_WORKSPACE": str(tmp_path), **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_what_it_was_given_is_in_no_environment_that_proc_shows(start):
    shown = """
found = [Path(f"/proc/{pid}/environ").read_bytes() for pid in (os.getpid(), os.getppid())]
print(json.dumps([os.environ["THE_SECRET"], os.environ["INPUT_FAIL-ON"], b"".join(found).decode()]))
"""
    printed, _ = start(shown, THE_SECRET=CANARY, **{"INPUT_FAIL-ON": "fail"}).communicate(timeout=60)
    assert f'["{CANARY}", "fail"' in printed
    assert printed.count(CANARY) == 1
    assert "INPUT_FAIL" not in printed


def test_no_debugger_and_no_core_file_sees_it(start):
    printed, _ = start("import ctypes\nprint('dumpable', ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))").communicate(
        timeout=60
    )
    assert "dumpable 0" in printed


@pytest.mark.parametrize(("program", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), signal.SIGSEGV)", 139)])
def test_the_first_process_exits_with_the_exit_code_of_the_command(start, program, code):
    process = start(program)
    process.communicate(timeout=60)
    assert process.returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_work_once_and_the_second_too(start, number):
    program = """
heard = []
def hear(number, frame):
    print("heard", number, flush=True)
    heard.append(number)
signal.signal(signal.SIGTERM, hear)
signal.signal(signal.SIGINT, hear)
print("ready", flush=True)
while len(heard) < 2:
    time.sleep(0.01)
os._exit(42)
"""
    process = start(program)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for _ in range(2):
        process.send_signal(number)
        assert process.stdout.readline() == f"heard {int(number)}\n"
    process.communicate(timeout=60)
    assert process.returncode == 42


def test_a_signal_before_the_work_listens_ends_it_as_interrupted(start):
    process = start(WAITING)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130


@pytest.mark.exhaustive
@pytest.mark.slow
def test_work_that_does_not_end_is_ended(start):
    process = start("signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITING)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130


def test_orphans_are_reaped_while_the_work_goes_on(start):
    program = """
orphan = subprocess.run(["/bin/sh", "-c", "sleep 0 & echo $!"], capture_output=True, text=True).stdout.strip()
for _ in range(1000):
    if not Path(f"/proc/{orphan}").exists():
        break
    time.sleep(0.01)
else:
    sys.exit(1)
"""
    process = start(program)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_what_the_work_leaves_behind_ends_with_it(start):
    program = """
left = subprocess.Popen(["sleep", "300"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(left.pid, flush=True)
os._exit(0)
"""
    printed, _ = start(program).communicate(timeout=60)
    assert not Path(f"/proc/{printed.strip()}").exists()


def test_a_number_of_the_jobs_own_is_not_taken_for_settings(start):
    process = start("print('as it was', os.environ['THE_SECRET'])", AGENT_EVAL_SETTINGS_FD="0", THE_SECRET=CANARY)
    printed, _ = process.communicate(timeout=60)
    assert f"as it was {CANARY}" in printed


@pytest.mark.parametrize(
    ("environ", "pid", "uid", "mode"),
    [
        ({}, 1, 0, "container"),
        ({"GITHUB_ACTIONS": "true"}, 1, 0, "container"),
        ({"AGENT_EVAL_ISOLATION": "on"}, 7, 0, "on"),
        ({"AGENT_EVAL_ISOLATION": "on", "GITHUB_ACTIONS": "true"}, 7, 1000, "job"),
        ({"GITHUB_ACTIONS": "true"}, 7, 1000, "job"),
        ({"GITHUB_ACTIONS": "true"}, 7, 0, "job"),
        ({}, 7, 0, None),
        ({}, 1, 1000, None),
        ({"AGENT_EVAL_ISOLATION": "off", "GITHUB_ACTIONS": "true"}, 1, 0, None),
    ],
)
def test_it_acts_in_a_container_in_a_step_or_when_asked(environ, pid, uid, mode):
    assert supervision_mode(environ, pid, uid) == (mode if sys.platform == "linux" else None)
