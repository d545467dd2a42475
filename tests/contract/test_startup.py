"""`agent-eval --help` must answer at once, so no command module may import at the top what only a run needs.

The tests' own way to start the command shows what the command shows.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from support.command import COMMAND, agent_eval
from support.recorded_repository import RecordedRepository

HEAVY = {
    "google",
    "grpc",
    "httpx",
    "jinja2",
    "joblib",
    "junit_xml",
    "nltk",
    "numpy",
    "pandas",
    "regex",
    "requests",
    "rouge_score",
    "scipy",
    "vertexai",
}
PROBE = """
import json, sys
sys.argv = ["agent-eval", *json.loads(sys.argv[1])]
from agent_eval_action.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
# A namespace package's .pth file puts an empty `google` there before anything is imported.
files = {name for name, module in list(sys.modules.items()) if getattr(module, "__file__", None)}
print("\\n" + json.dumps(sorted(files)))
"""


HALF_THE_START = {"asyncio", "pydantic"}
"""What the options of a command and a run need, but not the list of commands."""


@pytest.mark.parametrize(
    ("argv", "unwanted"),
    [(["--help"], HEAVY | HALF_THE_START), (["run", "--help"], HEAVY), (["--version"], HEAVY | HALF_THE_START)],
)
def test_help_loads_nothing_heavy(argv, unwanted):
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(argv)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    loaded = {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}
    assert "agent_eval_action" in loaded
    assert loaded & unwanted == set()


JUDGES = {f"agent_eval_action.criteria.{name}" for name in ("judge", "vertex")}


def test_scoring_a_recording_of_ours_loads_nothing_that_other_recordings_or_judges_need(tmp_path):
    RecordedRepository(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PROBE, '["run"]'], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert {"google", *JUDGES} & {*loaded, *(name.split(".")[0] for name in loaded)} == set()
    assert "agent_eval_action.criteria.base" in loaded


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize(
    ("words", "more"),
    [(("validate",), {}), (("run", "--repeats", "none"), {}), (("run",), {"GITHUB_ACTIONS": "true"})],
    ids=["ends well", "a wrong flag", "a step of a job"],
)
def test_a_forked_command_is_a_started_one(tmp_path, words, more):
    """Most integration tests fork the command from a process that has imported it, instead of starting it."""
    RecordedRepository(tmp_path)
    environ = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "COLUMNS": "70", **more}
    forked = agent_eval(*words, cwd=tmp_path, env=environ)
    shutil.rmtree(tmp_path / ".agent-eval", ignore_errors=True)
    started = subprocess.run(
        [COMMAND, *words], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    shown = [
        (done.returncode, re.sub(r"\d+(\.\d+)? ?m?s\b|\d+:\d\d\b|[0-9a-f]{32}", "…", done.stdout + done.stderr))
        for done in (forked, started)
    ]
    assert shown[0] == shown[1]
    assert shown[0][1]
