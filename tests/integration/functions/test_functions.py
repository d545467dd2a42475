"""Metric functions in real processes: what they get, what they may do, and that nobody else suffers from it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.config.criteria import CustomMetric
from agent_eval_action.criteria import custom as metrics
from agent_eval_action.criteria.base import Sample, ScoringContext
from agent_eval_action.results.evalset import ConversationScenario, EvalCase
from agent_eval_action.results.run_result import ScoreStatus
from support.turns import recorded, turn

SHARED = pytest.mark.asyncio(loop_scope="module")
"""Of tests that take the module's ``functions``."""
HELLO = [turn("hello"), turn("bye")]


def arguments(**more: Any) -> dict[str, Any]:
    turns = [one.model_dump(mode="json", exclude_none=True) for one in HELLO]
    metric = {"name": "mine", "criterion": {"threshold": 0.5, "tone": {"of": ["voice"]}}}
    return {"metric": metric, "actual": turns, "expected": turns, "scenario": None, **more}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.02)


@SHARED
async def test_a_function_gets_adks_objects(functions):
    said = await functions.call("shop.metrics.what_it_gets", arguments())
    assert said.error == "", said.traceback
    assert said.value["score"] == 1.0
    scenario = ConversationScenario(starting_prompt="hi", conversation_plan="talk", user_persona="EXPERT")
    simulated = arguments(expected=None, scenario=scenario.model_dump(mode="json", exclude_none=True))
    said = await functions.call("shop.metrics.what_it_gets", simulated)
    assert said.error == "", said.traceback


@SHARED
async def test_scores_of_synchronous_and_asynchronous_functions_old_and_new(functions):
    made = [await functions.call(f"shop.metrics.{name}", arguments()) for name in ("asynchronous", "three_arguments")]
    assert [one.value["score"] for one in made] == [0.25, 0.75]
    turns = [{"score": 0.25, "status": "FAILED"}] * 2
    assert made[0].value == {"score": 0.25, "status": "FAILED", "turns": turns}


@pytest.mark.exhaustive
async def test_a_google_adk_without_custom_metrics_gets_its_own_shapes(opened, adk110_python):
    event = {"content": {"role": "model", "parts": [{"function_call": {"name": "f", "args": {}}}]}}
    turns = [recorded(event, event).model_dump(mode="json", exclude_none=True)]
    functions = opened(python=adk110_python)
    said = await functions.call("shop.metrics.calls_counted", arguments(actual=turns, expected=turns))
    assert said.error == "", said.traceback
    assert said.value["score"] == 2.0
    scenario = {"starting_prompt": "hi", "conversation_plan": "talk"}
    said = await functions.call("shop.metrics.calls_counted", arguments(scenario=scenario))
    assert "1.10.0 has no conversation_scenario to pass" in said.error


async def test_functions_that_only_compute_share_one_process(opened):
    functions = opened()
    made = await asyncio.gather(*(functions.call("shop.metrics.process_id", arguments()) for _ in range(5)))
    assert len({one.value["score"] for one in made}) == 1


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("raising", "shop.metrics.raising: ValueError: the metric is wrong"),
        ("leaving", "shop.metrics.leaving: sys.exit(0) was called"),
        ("vanishing", "shop.metrics.vanishing: its process ended with exit code 3"),
        ("closing", "shop.metrics.closing: its process ended"),
        ("no_arguments", "it takes (), and is called with (eval_metric, actual_invocations, "),
        ("a_number", "it returned 0.9, not an EvaluationResult of google.adk.evaluation"),
        ("enormous", "it returned a dict, not an EvaluationResult"),
        ("many_turns", "it returned the scores of 200000 turns"),
        ("NO_FUNCTION", "shop.metrics.NO_FUNCTION is a int and cannot be called"),
        ("missing", "has no missing"),
    ],
)
@SHARED
async def test_what_goes_wrong_is_one_metrics_error(functions, name, told):
    bad, good = await asyncio.gather(
        functions.call(f"shop.metrics.{name}", arguments()), functions.call("shop.metrics.asynchronous", arguments())
    )
    assert told in bad.error
    assert bad.value is None
    assert good.value["score"] == 0.25
    again = await functions.call("shop.metrics.asynchronous", arguments())
    assert again.value["score"] == 0.25


@SHARED
async def test_a_function_that_cannot_be_imported_is_named_with_the_places_looked_in(functions):
    said = await functions.call("nowhere.tone", arguments())
    places = f"{functions._spec.workspace} or an installed package"
    assert said.error.startswith(f"cannot import nowhere.tone (from {places}): ModuleNot")
    assert "find" in said.traceback


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("name", ["hanging", "hanging_asynchronously"])
async def test_a_function_that_hangs_is_ended_with_what_it_started(opened, tmp_path, name):
    child = tmp_path / "child"
    environ = {"PATH": "/usr/bin:/bin", "CHILD_FILE": str(child)}
    functions = opened(timeout_s=4.0, environ=environ, env_allow=("CHILD_FILE",))
    hung, good = await asyncio.gather(
        functions.call(f"shop.metrics.{name}", arguments()), functions.call("shop.metrics.asynchronous", arguments())
    )
    assert hung.error == f"shop.metrics.{name}: the call took longer than 4 s"
    assert good.value["score"] == 0.25
    if name == "hanging":
        assert "in hanging" in hung.traceback  # where it stood
    else:
        assert not alive(int(child.read_text()))


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("name", ["printing", "forgetting", "moving"])
async def test_what_a_function_breaks_is_whole_for_the_next(opened, name):
    functions = opened()
    said = await functions.call(f"shop.metrics.{name}", arguments())
    assert said.value["score"] == 1.0
    said = await functions.call("shop.metrics.what_it_gets", arguments())
    assert said.error == "", said.traceback


@pytest.mark.exhaustive
async def test_a_process_that_lost_modules_is_replaced_and_one_that_was_only_moved_is_not(opened, tmp_path):
    functions = opened()
    seen = []
    for name in ("moving", "moving", "forgetting"):
        said = await functions.call("shop.metrics.process_id", arguments())
        seen.append(said.value["score"])
        assert (await functions.call(f"shop.metrics.{name}", arguments())).error == ""
    assert len(set(seen)) == 1
    assert (await functions.call("shop.metrics.process_id", arguments())).value["score"] != seen[0]
    await functions.call("shop.metrics.moving", arguments())
    await functions.call("shop.metrics.where", arguments())
    await functions.stop()
    assert f"{tmp_path} [" in (tmp_path / "shop.metrics.log").read_text()  # back where it began


@SHARED
async def test_a_function_may_have_children(functions):
    said = await functions.call("shop.metrics.with_children", arguments())
    assert said.value["score"] == 3.0


async def test_a_function_sees_what_an_agent_sees_of_our_environment(opened, tmp_path):
    (tmp_path / "shop" / ".env").write_text("FROM_DOTENV=1\n")
    environ = {"PATH": "/usr/bin:/bin", "GITHUB_TOKEN": "secret", "GOOGLE_API_KEY": "key"}
    functions = opened(environ=environ)
    said = await functions.call("shop.metrics.where", arguments())
    assert said.value["score"] == 2.0  # the key and the .env, and not CI's token
    await functions.stop()
    printed = (tmp_path / "shop.metrics.log").read_text()
    assert printed.startswith(str(tmp_path))  # the folder above the agent
    assert printed.rstrip().endswith("[]")  # our own folder is not on its path


@SHARED
async def test_nan_and_flags_are_no_scores(functions):
    for name in ("not_a_number", "a_flag", "nothing_measured"):
        instruments = ScoringContext(functions=functions)
        case = EvalCase(eval_id="case", conversation=tuple(HELLO))
        made = custom(f"shop.metrics.{name}")
        said = await made.score(Sample(case, tuple(HELLO), context=instruments))
        assert (said.status, said.score) == (ScoreStatus.ERROR, None), name


@SHARED
async def test_a_case_is_scored_through_the_criterion(functions):
    case = EvalCase(eval_id="case", conversation=tuple(HELLO))
    made = custom("shop.metrics.asynchronous")
    said = await made.score(Sample(case, tuple(HELLO), context=ScoringContext(functions=functions)))
    assert (said.score, said.passed, [one.score for one in said.turns]) == (0.25, False, [0.25, 0.25])


async def test_stop_answers_whoever_waits_and_leaves_no_process(opened, tmp_path):
    child = tmp_path / "child"
    functions = opened(environ={"PATH": "/usr/bin:/bin", "CHILD_FILE": str(child)}, env_allow=("CHILD_FILE",))
    call = asyncio.create_task(functions.call("shop.metrics.hanging_asynchronously", arguments()))
    await asyncio.to_thread(wait_until, lambda: child.exists() and bool(child.read_text()))
    await functions.stop()
    assert (await call).error == "the run ended"
    assert not alive(int(child.read_text()))
    assert (await functions.call("shop.metrics.asynchronous", arguments())).error == "the run ended"


async def test_a_call_that_is_given_up_costs_its_process_alone(opened, tmp_path):
    child = tmp_path / "child"
    functions = opened(environ={"PATH": "/usr/bin:/bin", "CHILD_FILE": str(child)}, env_allow=("CHILD_FILE",))
    call = asyncio.create_task(functions.call("shop.metrics.hanging_asynchronously", arguments()))
    await asyncio.to_thread(wait_until, lambda: child.exists() and bool(child.read_text()))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await functions.call("shop.metrics.asynchronous", arguments())).value["score"] == 0.25
    assert not alive(int(child.read_text()))


async def test_nothing_is_started_before_the_first_call(opened, tmp_path):
    functions = opened(python=tmp_path / "no" / "python")
    await functions.stop()
    assert not (tmp_path / "shop.metrics.log").exists()


async def test_no_interpreter_is_reported_for_every_metric(opened, tmp_path):
    functions = opened(python=tmp_path / "no" / "python")
    for _ in range(2):
        said = await functions.call("shop.metrics.asynchronous", arguments())
        assert said.error.startswith("no interpreter for metric functions: the configured interpreter")
        assert "`python:`" in said.error


async def test_the_agents_interpreter_is_taken_where_it_is_known(opened, adk213_python):
    functions = opened(python=None, known_interpreter=lambda: adk213_python)
    assert (await functions.call("shop.metrics.asynchronous", arguments())).error == ""


async def test_processes_end_with_whoever_started_them(adk213_python, tmp_path, opened):
    """Nobody calls stop() when we are killed."""
    del opened
    child = tmp_path / "child"
    program = (
        "import asyncio\n"
        "from pathlib import Path\n"
        "from agent_eval_action.environments.runtime import AgentRuntimeSpec\n"
        "from agent_eval_action.folders import OutputFolder\n"
        "from agent_eval_action.processes.metric_functions import MetricFunctions\n"
        f"here = Path({str(tmp_path)!r})\n"
        f"environ = {{'PATH': '/usr/bin:/bin', 'CHILD_FILE': {str(child)!r}}}\n"
        "spec = AgentRuntimeSpec('shop', here / 'shop', here, OutputFolder.at(here),\n"
        f"    OutputFolder.at(here / 'cache'), Path({str(adk213_python)!r}),\n"
        "    environ=environ, env_allow=('CHILD_FILE',))\n"
        "metric = {'name': 'm', 'criterion': {'threshold': 1}}\n"
        "call = {'metric': metric, 'actual': [], 'expected': [], 'scenario': None}\n"
        "asyncio.run(MetricFunctions(spec).call('shop.metrics.telling_its_own_number', call))\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    await asyncio.to_thread(wait_until, lambda: child.exists() and bool(child.read_text()))
    process.kill()
    await process.wait()
    await asyncio.to_thread(wait_until, lambda: not alive(int(child.read_text())))


def custom(function: str) -> Any:
    metric = CustomMetric.model_validate({"code_config": {"name": function}})
    return metrics.custom_criterion("mine", metric, "test_config.json:3")(threshold=0.5)
