"""The library: its page's code runs and is typed, its names are the documented ones, and importing it costs little."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import agent_eval_action
from agent_eval_action import RunResult, Verdict, compare, evaluate, evaluate_sync, load_settings
from agent_eval_action.errors import ConfigError, ResultsError
from agent_eval_action.run.events import AttemptFinished, Event
from support.pages import ROOT
from support.recorded_repository import RecordedRepository

PAGE = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
CLIENTS = {"google", "grpc", "httpx", "jinja2", "nltk", "numpy", "openai", "pandas", "rouge_score", "scipy", "vertexai"}
PUBLIC = sorted(name for name in agent_eval_action.__all__ if not name.startswith("__"))


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedRepository:
    for name in list(os.environ):
        if name.startswith(("INPUT_", "GITHUB_")):
            monkeypatch.delenv(name)
    return RecordedRepository(tmp_path)


def python(code: str, cwd: Path) -> str:
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def outcome(result: RunResult) -> Verdict:
    assert result.decision is not None
    return result.decision.outcome


@pytest.mark.parametrize("code", BLOCKS, ids=range(1, len(BLOCKS) + 1))
def test_the_pages_code_runs(code: str, checkout: RecordedRepository) -> None:
    python(code, checkout.root)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_pages_code_is_typed(tmp_path: Path) -> None:
    files = [tmp_path / f"block{number}.py" for number in range(len(BLOCKS))]
    for file, code in zip(files, BLOCKS, strict=True):
        file.write_text(code)
    command = [sys.executable, "-m", "mypy", "--strict", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout


def test_the_page_names_what_is_public() -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"\w+", row)) == PUBLIC


def test_importing_the_package_takes_no_time_and_its_names_load_no_client(tmp_path: Path) -> None:
    code = f"""
import json, sys, time
began = time.process_time()
import agent_eval_action
seconds = time.process_time() - began
from agent_eval_action import {", ".join(PUBLIC)}
files = {{name for name, module in list(sys.modules.items()) if getattr(module, "__file__", None)}}
print(json.dumps([seconds, sorted(files)]))
"""
    seconds, modules = zip(*(json.loads(python(code, tmp_path)) for _ in range(3)), strict=True)
    assert min(seconds) < 0.1
    assert {name.split(".")[0] for name in modules[0]} & {*CLIENTS, "asyncio"} == set()
    assert [name for name in modules[0] if name.startswith("agent_eval_action.criteria.judge")] == []
    assert "agent_eval_action.results.history" not in modules[0], "what main has is nothing to a criterion"
    assert "pydantic.plugin._loader" not in modules[0], "the schema of a model is built at import"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'evaluat'"):
        agent_eval_action.evaluat  # noqa: B018 - the access is what is tested


def test_a_run_is_what_the_command_would_make(checkout: RecordedRepository) -> None:
    events: list[Event] = []
    result = evaluate_sync(checkout.root, repeats=2, on_event=events.append)
    command = checkout("run", "--repeats", "2")
    written = json.loads((checkout.root / ".agent-eval/out/results.json").read_text())
    assert outcome(result) == written["decision"]["outcome"], command.stderr
    assert result.conditions.repeats == written["conditions"]["repeats"] == 2
    assert [event.attempt.case for event in events if isinstance(event, AttemptFinished)] == ["a", "a"]
    (case,) = result.sets[0].cases
    assert [score.score for attempt in case.attempts for score in attempt.scores] == [1.0, 1.0]


def test_options_go_over_the_file_and_are_for_a_folder_alone(checkout: RecordedRepository) -> None:
    checkout.write("agent-eval.yaml", "agent: bot\nrecording: recording\nrepeats: 3\n")
    settings = load_settings(checkout.root, repeats=2)
    assert (load_settings(checkout.root).repeats, settings.repeats) == (3, 2)
    assert evaluate_sync(settings).conditions.repeats == 2
    with pytest.raises(TypeError, match="options"):
        evaluate_sync(settings, repeats=4)
    with pytest.raises(ConfigError):
        load_settings(checkout.root, repeats="none")


def test_cancelling_an_evaluation_ends_it(checkout: RecordedRepository) -> None:
    async def main() -> set[asyncio.Task[object]]:
        began = asyncio.Event()
        work = asyncio.create_task(evaluate(checkout.root, on_event=lambda _: began.set()))
        await began.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(main()) == set()


def test_a_comparison_takes_results_and_paths(checkout: RecordedRepository) -> None:
    result = evaluate_sync(checkout.root)
    settings = load_settings(checkout.root)
    checkout("run")
    assert outcome(compare(result, checkout.root / ".agent-eval/out", settings)) is Verdict.PASS
    lost = result.model_copy(update={"sets": ()})
    decided = compare(result, lost, settings)
    assert decided.decision is not None
    assert decided.decision.findings, "what is measured no more is said"
    with pytest.raises(ResultsError):
        compare(checkout.root / "nowhere", result, settings)
