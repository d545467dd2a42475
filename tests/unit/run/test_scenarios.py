"""Scenario cases through plan, executor, scoring, recording and resume, with a scripted model as the user."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.agents.recorded import RecordedAgent
from agent_eval_action.config.criteria import CriterionSpec, UserSimulatorConfig
from agent_eval_action.config.discovery import DiscoveredSet, Discovery
from agent_eval_action.config.models import AgentSettings
from agent_eval_action.criteria.base import ScoringContext
from agent_eval_action.errors import ConfigError, EvalFileError
from agent_eval_action.folders import OutputFolder
from agent_eval_action.formats import case_digest
from agent_eval_action.llm.client import LlmError, LlmErrorKind
from agent_eval_action.results.evalset import EvalCase
from agent_eval_action.results.run_result import Attempt, ErrorKind
from agent_eval_action.results.transcripts import ATTEMPTS, parse_attempt, read_lines
from agent_eval_action.run.base_agents import AgentGroup
from agent_eval_action.run.loader import Loader
from agent_eval_action.run.plan import Plan, model_requirements, planned_digest
from agent_eval_action.run.resume import PreviousAttempts, load_previous_attempts
from support.plan_runner import run_plan
from support.scripted_llm import ScriptedLlm

SCENARIO = {"starting_prompt": "Hello", "conversation_plan": "Roll twice."}
FIXED = {
    "eval_id": "fixed",
    "conversation": [{"user_content": {"parts": [{"text": "hi"}]}, "final_response": {"parts": [{"text": "yes"}]}}],
}


@pytest.fixture
def kit(scripted: type[Any]) -> Any:
    return sys.modules[scripted.__module__]


def spec(name: str, **options: Any) -> CriterionSpec:
    return CriterionSpec(name, options, at=("criteria", name))


CALLS = spec("tool_call_count_v1")


def discovery(
    folder: Path, cases: list[dict[str, Any]], *specs: CriterionSpec, user: UserSimulatorConfig | None = None
) -> Discovery:
    file = folder / "s.evalset.json"
    file.write_text(json.dumps({"eval_set_id": "s", "eval_cases": cases}))
    agent = AgentSettings(path=folder, name="bot", criteria=specs or (CALLS,), user_simulator=user)
    return Discovery((DiscoveredSet(agent=agent, path=file, key="s"),))


def scenario(name: str = "talk", **fields: Any) -> dict[str, Any]:
    return {"eval_id": name, "conversation_scenario": {**SCENARIO, **fields}}


def plan(folder: Path, *cases: dict[str, Any], repeats: int = 1, user: UserSimulatorConfig | None = None) -> Plan:
    return Loader(folder).plan(discovery(folder, list(cases) or [scenario()], user=user), repeats)


async def run(out: Path, plan: Plan, driver: Any, llm: Any, kept: PreviousAttempts | None = None) -> list[Attempt]:
    """The attempts as written down."""

    head = AgentGroup.start("head", {"bot": driver})
    contexts = {"bot": ScoringContext(llm=llm)}
    await run_plan(out, plan, head, previous=PreviousAttempts() if kept is None else kept, contexts=contexts)
    await head.stop()
    path = out / ATTEMPTS
    return sorted(
        (parse_attempt(path, n, line) for n, _, line in read_lines(path)), key=lambda one: (one.case, one.repeat)
    )


def said(attempt: Attempt) -> list[str]:
    return [turn.user_content.text for turn in attempt.turns]


async def test_what_the_user_said_is_in_the_turns_and_every_repeat_is_asked_for(tmp_path: Path, kit: Any) -> None:
    llm = ScriptedLlm(lambda r: "</finished>" if r.sample == 2 else f"roll {r.repeat}")
    first, second = await run(tmp_path, plan(tmp_path, repeats=2), kit.Script(lambda *_: "</finished>"), llm)
    assert said(first) == ["Hello", "roll 0"]
    assert said(second) == ["Hello", "roll 1"]
    assert (first.error, first.ended, first.scores[0].score) == (None, "stop_signal", 0.0)
    assert sorted((r.repeat, r.sample) for r in llm.asked) == [(0, 1), (0, 2), (1, 1), (1, 2)]


async def test_the_limit_ends_it_and_is_recorded(tmp_path: Path, kit: Any) -> None:
    user = UserSimulatorConfig(max_allowed_invocations=3)
    (attempt,) = await run(
        tmp_path, plan(tmp_path, user=user), kit.Script(lambda *_: "yes"), ScriptedLlm(lambda _: "go")
    )
    assert said(attempt) == ["Hello", "go", "go"]
    assert (attempt.error, attempt.ended) == (None, "turn_limit")


async def test_a_user_that_cannot_go_on_is_no_score_and_not_tried_again(tmp_path: Path, kit: Any) -> None:
    driver = kit.Script(lambda *_: "yes")
    llm = ScriptedLlm(lambda _: LlmError(LlmErrorKind.UNAVAILABLE, "the model answered 500"))
    (attempt,) = await run(tmp_path, plan(tmp_path), driver, llm)
    assert attempt.error is not None
    assert (attempt.error.kind, attempt.error.turn) == (ErrorKind.USER, 1)
    assert attempt.error.message == "the simulated user could not go on: the model answered 500"
    assert (attempt.scores, said(attempt), attempt.ended) == ((), ["Hello"], "")
    assert (len(driver.opened), driver.running) == (1, 0)


async def test_a_recording_plays_its_own_user(tmp_path: Path, kit: Any) -> None:
    made = plan(tmp_path)
    replies = iter(["roll", "again", "</finished>"])
    (first,) = await run(tmp_path / "first", made, kit.Script(lambda *_: "yes"), ScriptedLlm(lambda _: next(replies)))
    silent = ScriptedLlm(lambda _: "never asked")
    recording = RecordedAgent("bot", tmp_path / "first")
    (second,) = await run(tmp_path / "second", made, recording, silent)
    assert silent.asked == []
    assert (second.turns, second.ended, second.error) == (first.turns, "stop_signal", None)
    assert said(second) == ["Hello", "roll", "again"]


async def test_a_recording_of_an_error_is_that_error(tmp_path: Path, kit: Any) -> None:
    made = plan(tmp_path)
    broken = ScriptedLlm(lambda _: "")
    await run(tmp_path / "first", made, kit.Script(lambda *_: "yes"), broken)
    (second,) = await run(tmp_path / "second", made, RecordedAgent("bot", tmp_path / "first"), broken)
    assert second.error is not None
    assert second.error.kind is ErrorKind.USER


async def test_a_recording_of_another_scenario_is_distinguished(tmp_path: Path, kit: Any) -> None:
    await run(tmp_path / "first", plan(tmp_path), kit.Script(lambda *_: "yes"), ScriptedLlm(lambda _: "</finished>"))
    other = plan(tmp_path, scenario(starting_prompt="Good evening"))
    (second,) = await run(tmp_path / "second", other, RecordedAgent("bot", tmp_path / "first"), None)
    assert second.error is not None
    assert "record it again" in second.error.message


async def test_resuming_asks_no_user_again_unless_it_is_another(tmp_path: Path, kit: Any) -> None:
    script = ScriptedLlm(lambda r: "</finished>" if r.sample == 2 else "roll")
    made = plan(tmp_path)
    await run(tmp_path / "first", made, kit.Script(lambda *_: "yes"), script)
    asked, out = len(script.asked), tmp_path / "second"
    (again,) = await run(
        out,
        made,
        kit.Script(lambda *_: "no"),
        script,
        load_previous_attempts(tmp_path / "first", OutputFolder.at(out), made),
    )
    assert (len(script.asked), said(again)) == (asked, ["Hello", "roll"])
    other = plan(tmp_path, user=UserSimulatorConfig(model="openai/other"))
    await run(
        out,
        other,
        kit.Script(lambda *_: "no"),
        script,
        load_previous_attempts(tmp_path / "first", OutputFolder.at(out), other),
    )
    assert len(script.asked) == 2 * asked


def test_a_scenarios_digest_names_its_user_and_a_fixed_ones_does_not() -> None:
    talk, fixed = EvalCase.model_validate(scenario()), EvalCase.model_validate(FIXED)
    one, other = UserSimulatorConfig(), UserSimulatorConfig(model="another")
    assert planned_digest(fixed, one) == planned_digest(fixed, other) == case_digest(fixed)
    assert len({case_digest(talk), planned_digest(talk, one), planned_digest(talk, other)}) == 3
    renamed = EvalCase.model_validate(scenario("another name"))
    assert planned_digest(renamed, one) == planned_digest(talk, one)


def test_the_models_of_users_are_looked_for_unless_the_agent_is_a_recording(tmp_path: Path) -> None:
    user = UserSimulatorConfig(model="openai/x", model_configuration={"temperature": 0})
    made = plan(tmp_path, scenario(), FIXED, user=user)
    (wanted,) = model_requirements(made)
    assert (wanted.purpose, wanted.model, wanted.options) == ("user_simulator", "openai/x", {"temperature": 0})
    assert model_requirements(made, recorded={"bot"}) == model_requirements(plan(tmp_path, FIXED, user=user)) == ()


def test_the_user_is_the_one_of_the_criteria_file_unless_the_agent_has_one(tmp_path: Path) -> None:
    config = tmp_path / "test_config.json"
    config.write_text(json.dumps({"criteria": {"tool_call_count_v1": {}}, "userSimulatorConfig": {"model": "of-file"}}))
    found = discovery(tmp_path, [scenario()])
    for own, model in ((None, "of-file"), (UserSimulatorConfig(model="of-agent"), "of-agent")):
        agent = AgentSettings(path=tmp_path, name="bot", criteria=config, user_simulator=own)
        (one,) = found.sets
        placed = DiscoveredSet(agent=agent, path=one.path, key="s", criteria_file=config)
        (planned,) = Loader(tmp_path).plan(Discovery((placed,)), 1).sets
        assert planned.simulator.model == model


ROUGE = spec("response_match_score", threshold=0.5)


async def test_a_reference_criterion_is_skipped_and_said_once(tmp_path: Path, kit: Any) -> None:
    loader = Loader(tmp_path)
    made = loader.plan(discovery(tmp_path, [scenario("a"), scenario("b"), FIXED], ROUGE, CALLS), 2)
    assert loader.notes == ["response_match_score is not applicable to 2 cases, and skipped there"]
    attempts = await run(tmp_path, made, kit.Script(lambda *_: "yes"), ScriptedLlm(lambda _: "</finished>"))
    assert [[one.status.value for one in attempt.scores] for attempt in attempts] == [
        *[["not_applicable", "scored"]] * 4,
        *[["scored", "scored"]] * 2,
    ]


def test_cases_nothing_scores_are_named(tmp_path: Path) -> None:
    loader = Loader(tmp_path)
    loader.plan(discovery(tmp_path, [scenario("a"), FIXED], ROUGE), 1)
    assert loader.notes[1:] == ["run, and scored by no criterion: s:a"]


@pytest.mark.parametrize(
    ("cases", "specs", "says"),
    [
        ([scenario()], (ROUGE,), "the users of its cases are simulated"),
        (
            [FIXED],
            (spec("per_turn_user_simulator_quality_v1", threshold=0.5),),
            "its cases have a fixed conversation",
        ),
    ],
)
def test_a_set_that_nothing_can_score_is_nothing_to_measure(
    tmp_path: Path, cases: list[dict[str, Any]], specs: tuple[CriterionSpec, ...], says: str
) -> None:
    with pytest.raises(EvalFileError, match="nothing to measure") as caught:
        Loader(tmp_path).plan(discovery(tmp_path, cases, *specs), 1)
    (problem,) = caught.value.problems
    assert says in str(problem)
    assert problem.hint


def test_a_user_that_cannot_be_played_is_refused_once_with_the_first_case(tmp_path: Path) -> None:
    needed = "{{ stop_signal }}{{ conversation_plan }}{{ conversation_history }}"
    user = UserSimulatorConfig(custom_instructions=needed)
    cases = [scenario("a"), *(scenario(name, user_persona="EXPERT") for name in "bc")]
    with pytest.raises(ConfigError) as caught:
        plan(tmp_path, *cases, user=user)
    (problem,) = caught.value.problems
    assert "case b: custom_instructions need the placeholder {{ persona }}" in str(problem)
    assert plan(tmp_path, FIXED, user=user).cases == 1
