"""Judging beside the agents: what is cut off asks nobody any more, and one criterion's trouble is its own."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action import criteria
from agent_eval_action.config.criteria import CriterionSpec
from agent_eval_action.criteria.base import Criterion, Sample, ScoringContext
from agent_eval_action.criteria.verdicts import FinalResponseMatch
from agent_eval_action.folders import OutputFolder
from agent_eval_action.llm.budget import Budgeted, Meter, SpendingLimits
from agent_eval_action.results.evalset import ConversationScenario, EvalCase
from agent_eval_action.results.run_result import AttemptError, CriterionScore, ErrorKind, RunResult, ScoreStatus
from agent_eval_action.results.transcripts import TranscriptWriter
from agent_eval_action.run.base_agents import AgentGroup
from agent_eval_action.run.plan import Plan, PlannedCase
from agent_eval_action.run.resume import PreviousAttempts, load_previous_attempts
from support.plan_runner import CONDITIONS, attempt_runner
from support.scripted_llm import ScriptedLlm

MATCH = CriterionSpec("final_response_match_v2", {"threshold": 0.5})
YES = '{"rationale": "It does.", "verdict": "yes"}'


@pytest.fixture
def kit(scripted: type[Any]) -> Any:
    """The conftest's builders."""
    return sys.modules[scripted.__module__]


def judged(plan: Plan, *built: Criterion) -> Plan:
    """The plan, scored by these criteria alone."""
    chosen = built or criteria.build([MATCH])
    infos = tuple(criteria.criterion_info(criterion) for criterion in chosen)
    return replace(plan, sets=tuple(replace(one, criteria=chosen, infos=infos) for one in plan.sets))


async def make(
    out: Path,
    plan: Plan,
    driver: Any,
    llm: Any,
    *,
    kept: PreviousAttempts | None = None,
    meter: Meter | None = None,
    concurrency: int = 1,
) -> RunResult:
    """Everything of the plan that may be made, as a result."""

    with TranscriptWriter(OutputFolder.at(out)) as writer:
        runner = attempt_runner(
            plan,
            writer,
            concurrency=concurrency,
            retries=1,
            meter=meter or Meter(),
            previous=PreviousAttempts() if kept is None else kept,
            contexts={"bot": ScoringContext(llm=llm)},
        )
        await runner.make(plan.attempts(), AgentGroup.start("head", {"bot": driver}))
    return runner.collector.result(runner.meter, 0.0, started_at="now", status="complete", conditions=CONDITIONS)


async def test_a_run_that_is_cut_off_asks_no_judge_any_more(tmp_path: Path, kit: Any) -> None:
    """The first turn is with its judge and the agent is at the second when everything is cancelled."""
    llm, delays, second = ScriptedLlm(lambda _: YES, latency=600.0), iter([0.0]), asyncio.Event()

    def delay(_: Any) -> float:
        first = next(delays, None)
        if first is None:
            second.set()
        return 600.0 if first is None else first

    making = asyncio.create_task(
        make(tmp_path, judged(kit.plan(kit.case("a"))), kit.Script(lambda *_: "yes", delay), llm)
    )
    await second.wait()
    for _ in range(5):  # the votes of the first turn are tasks of tasks
        await asyncio.sleep(0)
    assert llm.asked
    making.cancel()
    await asyncio.gather(making, return_exceptions=True)
    assert llm._open == 0


async def test_answers_that_wait_for_their_judge_are_kept_when_the_run_is_cut_off(tmp_path: Path, kit: Any) -> None:
    asked = asyncio.Event()

    def waiting(_: Any) -> str:
        raise AssertionError("no judge answers")

    llm = ScriptedLlm(waiting, latency=600.0)
    plan = judged(kit.plan(kit.case("a")))

    def answered(*_: Any) -> str:
        asyncio.get_running_loop().call_later(0.2, asked.set)
        return "yes"

    making = asyncio.create_task(make(tmp_path, plan, kit.Script(answered), llm))
    await asked.wait()
    making.cancel()
    await asyncio.gather(making, return_exceptions=True)
    (kept,) = [
        load_previous_attempts(tmp_path, OutputFolder.at(tmp_path), plan).get(planned.key)
        for planned in plan.attempts()
    ]
    assert kept is not None
    assert (len(kept.turns), kept.scores) == (2, ())


async def test_an_attempt_made_again_leaves_no_judge_of_the_first_try(tmp_path: Path, kit: Any) -> None:
    broken = AttemptError(kind=ErrorKind.UNAVAILABLE, message="503")
    said = iter(["yes", broken])
    llm = ScriptedLlm(lambda _: YES, latency=0.01)
    result = await make(tmp_path, judged(kit.plan(kit.case("a"))), kit.Script(lambda *_: next(said, "yes")), llm)
    (score,) = result.sets[0].cases[0].attempts[0].scores
    assert (score.score, len(score.turns), llm._open) == (1.0, 2, 0)


class Unsure(FinalResponseMatch):
    """One with a defect: it cannot even say whether it applies."""

    def refuse(self, sample: Sample) -> CriterionScore | None:
        del sample
        raise RuntimeError("a defect")


async def test_a_criterion_that_raises_while_turns_come_in_is_one_error_and_not_a_lost_run(
    tmp_path: Path, kit: Any
) -> None:
    plan = judged(
        kit.plan(kit.case("a")), Unsure(threshold=0.5), *criteria.build([CriterionSpec("tool_call_count_v1")])
    )
    result = await make(tmp_path, plan, kit.Script(lambda *_: "yes"), ScriptedLlm(lambda _: YES))
    unsure, calls = result.sets[0].cases[0].attempts[0].scores
    assert (unsure.status, unsure.score, calls.score) == (ScoreStatus.ERROR, None, 0.0)
    assert "a defect" in unsure.reason


async def test_what_an_earlier_run_has_counts_also_behind_what_a_limit_leaves_out(tmp_path: Path, kit: Any) -> None:
    names = [f"c{number}" for number in range(12)]
    whole, last = kit.plan(*map(kit.case, names)), kit.plan(kit.case(names[-1]))
    llm, driver = ScriptedLlm(lambda _: YES), kit.Script(lambda *_: "yes", tokens=10)
    await make(tmp_path / "first", judged(last), driver, llm)
    kept = load_previous_attempts(tmp_path / "first", OutputFolder.at(tmp_path / "second"), whole)
    result = await make(
        tmp_path / "second", judged(whole), driver, llm, kept=kept, meter=Meter(SpendingLimits(calls=1))
    )
    cases = {case.case: case.attempts for case in result.sets[0].cases}
    made = {name: attempts[0].error is None for name, attempts in cases.items()}
    assert (made[names[0]], made[names[-2]], made[names[-1]]) == (True, False, True)


async def test_users_of_attempts_that_hold_the_whole_budget_do_not_wait_for_each_other(
    tmp_path: Path, kit: Any
) -> None:
    """An attempt's user is asked on the attempt's own account: waiting for another one would be for good."""
    scenario = ConversationScenario(starting_prompt="Hello", conversation_plan="Ask twice.")
    plan = kit.plan(kit.case("a"))
    played = PlannedCase(EvalCase(eval_id="a", conversation_scenario=scenario), "digest-a")
    plan = Plan((replace(plan.sets[0], cases=(played,), criteria=(), infos=()),), repeats=2)
    meter = Meter(SpendingLimits(calls=2))
    llm = Budgeted(ScriptedLlm(lambda request: "</finished>" if request.sample > 1 else "more"), meter)
    # both sessions are open before either user is asked
    driver = kit.Script(lambda *_: "yes", lambda _: 0.05)
    result = await asyncio.wait_for(make(tmp_path, plan, driver, llm, meter=meter, concurrency=2), 60)
    attempts = result.sets[0].cases[0].attempts
    assert [one.error is None or one.error.kind is ErrorKind.STOPPED for one in attempts] == [True, True]
    assert meter.reserved.calls == 0
