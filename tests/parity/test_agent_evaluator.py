"""Suites for google-adk's AgentEvaluator end the same with ours: passed, failed for the same means, or refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_eval_action.errors import AgentEvalError
from agent_eval_action.testing import AgentEvaluator
from support import adk_program
from support.agent_evaluator_suites import MAKERS, make_suite

SUITES = 5 * len(MAKERS)
PROGRAM = Path(__file__).with_name("adk_agent_evaluator.py")
MEAN = r"(\S+) for \S+ Failed\. Expected (\S+), but got (\S+)\."
RUNS = r".+ Failed\. (\d+) of (\d+) runs were recorded as failed .*"  # ids of the older schema are each tool's own
FAILURE = re.compile(f"^(?:{MEAN}|{RUNS})$", re.MULTILINE)
FILE_ERRORS = ("ValueError", "ValidationError", "JSONDecodeError", "FileNotFoundError")
"""Errors of google-adk for files that ours refuses with the line."""


@dataclass(frozen=True)
class Oracle:
    """google-adk's AgentEvaluator. ``flips``: a file that agents, which may be of another user, count in."""

    ask: adk_program.Ask
    python: Path
    flips: Path


@pytest.fixture(scope="module")
def oracle(adk213_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    flips = tmp_path_factory.mktemp("flips") / "flips"
    flips.parent.chmod(0o755)
    flips.touch()
    flips.chmod(0o666)
    with adk_program.running(adk213_python, PROGRAM) as ask:
        yield Oracle(ask, adk213_python, flips)


@pytest.mark.exhaustive(after=len(MAKERS))
@pytest.mark.parametrize("number", range(SUITES))
async def test_a_suite_ends_as_with_google_adk(
    number: int, oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = make_suite(tmp_path / "suite", number)
    oracle.flips.write_bytes(b"")
    theirs = oracle.ask({"folder": str(suite.folder), "arguments": suite.arguments, "flips": str(oracle.flips)})
    oracle.flips.write_bytes(b"")
    suite.write("agent-eval.yaml", f"python: {oracle.python}\n")
    monkeypatch.chdir(suite.folder)
    monkeypatch.syspath_prepend(suite.folder)
    monkeypatch.setenv("FLIPS", str(oracle.flips))
    raised: Exception | None = None
    try:
        await AgentEvaluator.evaluate(**suite.arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        raised = error
    if isinstance(raised, AgentEvalError):
        assert theirs["raised"] in FILE_ERRORS, (theirs, raised)
    else:
        ours = (type(raised).__name__, str(raised)) if raised else ("", "")
        assert ours[0] == theirs["raised"], (theirs, ours)
        assert sorted(FAILURE.findall(ours[1])) == sorted(FAILURE.findall(theirs["text"]))
