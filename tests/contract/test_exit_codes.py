"""Each exit code has one meaning, every error has one of them, and the documentation says them all."""

from __future__ import annotations

from pathlib import Path

from agent_eval_action import errors
from agent_eval_action.errors import AgentEvalError, ExitCode

ROOT = Path(__file__).resolve().parents[2]


def test_codes_are_unique_and_as_designed():
    assert {code.name: int(code) for code in ExitCode.__members__.values()} == {
        "PASS": 0,
        "FAIL": 1,
        "USAGE": 2,
        "INCONCLUSIVE": 3,
        "BUG": 70,
        "INTERRUPTED": 130,
    }
    assert len(ExitCode.__members__) == len(ExitCode), "two names share a value"


def test_every_error_is_in_the_tree_with_its_code():
    tree = errors.__doc__ or ""
    leaves = AgentEvalError.__subclasses__()
    assert len(leaves) >= 6
    for leaf in leaves:
        line = next((line for line in tree.splitlines() if f" {leaf.__name__} " in line), None)
        assert line, f"{leaf.__name__} is missing in the docstring of errors.py"
        assert f" {int(leaf.exit_code)} " in line, line


def test_the_container_page_says_every_code():
    page = (ROOT / "docs" / "container.md").read_text()
    for code in ExitCode:
        assert f"| {int(code)} |" in page, code
