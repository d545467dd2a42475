"""`agent-eval --help` must answer at once, so no command module may import at the top what only a run needs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

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
print("\\n" + json.dumps(sorted({name.split(".")[0] for name in files})))
"""


@pytest.mark.parametrize("argv", [["--help"], ["run", "--help"], ["--version"]], ids=" ".join)
def test_help_loads_nothing_heavy(argv):
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(argv)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert "agent_eval_action" in loaded
    assert loaded & HEAVY == set()
