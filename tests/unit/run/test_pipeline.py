"""The loop over a scripted driver: order, bounds, retries, stops, resume."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.agents.base import SessionRequest
from agent_eval_action.errors import OutputError, ResultsError
from agent_eval_action.folders import OutputFolder
from agent_eval_action.results.run_result import (
    AgentConditions,
    AttemptError,
    ErrorKind,
    Provenance,
    RunResult,
    RunStatus,
)
from agent_eval_action.results.transcripts import ATTEMPTS, TranscriptWriter, parse_attempt, read_lines
from agent_eval_action.run.base_agents import AgentGroup
from agent_eval_action.run.events import AttemptFinished, AttemptRetried, Event, Notice
from agent_eval_action.run.orchestrator import StopRequest
from agent_eval_action.run.plan import Plan
from agent_eval_action.run.resume import (
    PreviousAttempts,
    discard_previous_attempts,
    environment_digest,
    load_previous_attempts,
)
from support.full_disk import files_of_at_most
from support.plan_runner import run_plan

DIED = AttemptError(kind=ErrorKind.DIED, message="killed")
WRONG = AttemptError(kind=ErrorKind.EXCEPTION, message="ValueError: no")
BUSY = AttemptError(kind=ErrorKind.RATE_LIMITED, message="429")


@pytest.fixture
def kit(scripted: type[Any]) -> Any:
    """Everything of this folder's conftest."""
    return sys.modules[scripted.__module__]


class Runner:
    """Runs a plan over one scripted driver and keeps what it said."""

    def __init__(self, out: Path, max_time: float | None = None, **bounds: int) -> None:
        self.out = out
        self.bounds = {"concurrency": 4, **bounds}
        self.max_time = max_time
        self.events: list[Event] = []
        self.stop = StopRequest()

    async def __call__(self, plan: Plan, driver: Any, kept: PreviousAttempts | None = None) -> RunResult:
        orchestrator = await run_plan(
            self.out,
            plan,
            AgentGroup.start("head", {"bot": driver}),
            stop=self.stop,
            orchestrate={"max_time": self.max_time},
            **self.bounds,
            emit=self.events.append,
            previous=PreviousAttempts() if kept is None else kept,
        )
        return orchestrator.result("now")


async def test_results_are_in_the_order_of_the_plan_whatever_finished_first(tmp_path: Path, kit: Any) -> None:
    names = [f"case{n}" for n in range(6)]

    def delay(request: SessionRequest) -> float:
        return 0.02 * (6 - names.index(request.key.case))

    runner = Runner(tmp_path)
    result = await runner(kit.plan(*map(kit.case, names), repeats=2), kit.Script(lambda *_: "yes", delay))
    (found,) = result.sets
    assert [case.case for case in found.cases] == names
    assert [[a.repeat for a in case.attempts] for case in found.cases] == [[0, 1]] * 6
    finished = [event.attempt.case for event in runner.events if isinstance(event, AttemptFinished)]
    assert finished != sorted(finished)


async def test_every_score_is_there_and_totals_add_up(tmp_path: Path, kit: Any) -> None:
    result = await Runner(tmp_path)(kit.plan(kit.case("good"), kit.case("bad", "no")), kit.Script(lambda *_: "yes"))
    good, bad = result.sets[0].cases
    assert [(s.criterion, s.score, s.passed) for s in good.attempts[0].scores] == [
        ("tool_trajectory_avg_score", 1.0, True),
        ("response_match_score", 1.0, True),
    ]
    assert [(s.score, s.passed) for s in bad.attempts[0].scores] == [(1.0, True), (0.0, False)]
    assert (result.totals.cases, result.totals.attempts, result.totals.errors) == (2, 2, 0)


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_no_more_sessions_at_once_than_asked_for(tmp_path: Path, kit: Any, concurrency: int) -> None:
    driver = kit.Script(lambda *_: "yes", lambda _: 0.005)
    await Runner(tmp_path, concurrency=concurrency)(kit.plan(*(kit.case(f"c{n}") for n in range(9))), driver)
    assert driver.most == concurrency


async def test_a_wrong_answer_is_never_tried_again_and_an_exception_neither(tmp_path: Path, kit: Any) -> None:
    driver = kit.Script(lambda request, _: WRONG if request.key.case == "boom" else "no")
    result = await Runner(tmp_path)(kit.plan(kit.case("wrong"), kit.case("boom")), driver)
    assert len(driver.opened) == 2
    wrong, boom = result.sets[0].cases
    assert wrong.attempts[0].error is None
    assert boom.attempts[0].error == WRONG.model_copy(update={"turn": 0})
    assert boom.attempts[0].scores == ()


async def test_infrastructure_errors_are_tried_again_and_bounded(tmp_path: Path, kit: Any) -> None:
    def answer(request: SessionRequest, before: int) -> str | AttemptError:
        return "yes" if request.key.case == "recovers" and before == 1 else BUSY

    driver = kit.Script(answer)
    runner = Runner(tmp_path, retries=1)
    result = await runner(kit.plan(kit.case("recovers"), kit.case("never")), driver)
    recovers, never = (case.attempts[0] for case in result.sets[0].cases)
    assert (recovers.error, recovers.tries) == (None, 2)
    assert never.error is not None
    assert (never.error.kind, never.tries) == (ErrorKind.RATE_LIMITED, 2)
    assert sum(isinstance(event, AttemptRetried) for event in runner.events) == 2
    assert result.totals.retries == 2


@pytest.mark.parametrize("kind", [ErrorKind.BLOCKED, ErrorKind.TIMEOUT, ErrorKind.EXCEPTION, ErrorKind.OUTPUT])
async def test_what_is_of_the_agents_own_doing_is_not_tried_again(tmp_path: Path, kit: Any, kind: ErrorKind) -> None:
    driver = kit.Script(lambda *_: AttemptError(kind=kind, message="no"))
    await Runner(tmp_path)(kit.plan(kit.case("a")), driver)
    assert len(driver.opened) == 1


async def test_a_session_whose_worker_died_runs_alone_and_the_culprit_dies_alone(tmp_path: Path, kit: Any) -> None:
    def answer(request: SessionRequest, _: int) -> str | AttemptError:
        return DIED if request.key.case == "culprit" or not request.alone else "yes"

    driver = kit.Script(answer)
    result = await Runner(tmp_path, concurrency=32, retries=5)(
        kit.plan(kit.case("culprit"), kit.case("victim")), driver
    )
    culprit, victim = (case.attempts[0] for case in result.sets[0].cases)
    assert culprit.error is not None
    assert culprit.error.kind is ErrorKind.DIED
    assert culprit.tries == 2  # once with others, once alone: no further
    assert victim.error is None
    assert [request.alone for request in driver.opened if request.key.case == "victim"] == [False, True]


async def test_max_time_ends_the_run_with_everything_finished_written(tmp_path: Path, kit: Any) -> None:
    def delay(request: SessionRequest) -> float:
        return 0.0 if request.key.case == "quick" else 60.0

    runner = Runner(tmp_path, 0.3)
    result = await runner(kit.plan(kit.case("quick"), kit.case("slow")), kit.Script(lambda *_: "yes", delay))
    quick, slow = (case.attempts[0] for case in result.sets[0].cases)
    assert result.status is RunStatus.TIMED_OUT
    assert quick.error is None
    assert slow.error is not None
    assert slow.error.kind is ErrorKind.STOPPED
    assert (result.totals.attempts, result.totals.errors) == (1, 0), "what was not made is no error"
    assert [parse_attempt(tmp_path / ATTEMPTS, n, line).case for n, _, line in read_lines(tmp_path / ATTEMPTS)] == [
        "quick"
    ]


async def test_a_stop_request_ends_the_run_and_the_first_reason_stays(tmp_path: Path, kit: Any) -> None:
    runner = Runner(tmp_path)
    asyncio.get_running_loop().call_later(0.05, runner.stop.request, RunStatus.INTERRUPTED)
    asyncio.get_running_loop().call_later(0.06, runner.stop.request, RunStatus.TIMED_OUT)
    result = await runner(kit.plan(kit.case("slow")), kit.Script(lambda *_: "yes", lambda _: 60.0))
    assert result.status is RunStatus.INTERRUPTED


async def test_a_criterion_that_raises_is_one_error_and_not_a_lost_run(
    tmp_path: Path, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = kit.plan(kit.case("a"))

    async def raises(*_: object) -> None:
        raise ZeroDivisionError("in the criterion")

    monkeypatch.setattr(type(plan.sets[0].criteria[0]), "score", raises)
    result = await Runner(tmp_path)(plan, kit.Script(lambda *_: "yes"))
    broken, fine = result.sets[0].cases[0].attempts[0].scores
    assert (broken.status, broken.score) == ("error", None)
    assert "ZeroDivisionError: in the criterion" in broken.reason
    assert fine.score == 1.0


async def test_an_agent_that_does_not_start_is_the_error_of_each_of_its_cases(tmp_path: Path, kit: Any) -> None:
    class Broken(kit.Script):
        async def start(self) -> AgentConditions | AttemptError:
            return AttemptError(kind=ErrorKind.IMPORT, message="SyntaxError in agent.py")

    driver = Broken(lambda *_: "yes")
    result = await Runner(tmp_path)(kit.plan(kit.case("a"), kit.case("b")), driver)
    kinds = [case.attempts[0].error.kind for case in result.sets[0].cases]
    assert kinds == [ErrorKind.IMPORT] * 2
    assert driver.opened == []


async def test_resume_keeps_what_is_there_and_makes_only_what_is_missing(tmp_path: Path, kit: Any) -> None:
    plan = kit.plan(kit.case("a"), kit.case("b"), kit.case("c"))

    def breaks_b(request: SessionRequest, _: int) -> str | AttemptError:
        return WRONG if request.key.case == "b" else "yes"

    await Runner(tmp_path)(plan, kit.Script(breaks_b))
    with (tmp_path / ATTEMPTS).open("ab") as file:
        file.write(b'{"agent":"bot","eval_set":"set","case":"c","torn')
    driver = kit.Script(lambda *_: "yes")
    kept = load_previous_attempts(tmp_path, OutputFolder.at(tmp_path), plan)
    assert len(kept) == 2
    result = await Runner(tmp_path)(plan, driver, kept)
    assert [request.key.case for request in driver.opened] == ["b"]
    assert [case.attempts[0].error for case in result.sets[0].cases] == [None] * 3
    discard_previous_attempts(OutputFolder.at(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == [ATTEMPTS]


async def test_a_resumed_run_that_dies_loses_nothing(tmp_path: Path, kit: Any) -> None:
    plan = kit.plan(kit.case("a"), kit.case("b"))
    await Runner(tmp_path)(plan, kit.Script(lambda *_: "yes"))
    assert len(load_previous_attempts(tmp_path, OutputFolder.at(tmp_path), plan)) == 2
    with TranscriptWriter(OutputFolder.at(tmp_path)):  # the resumed run dies before it wrote anything
        pass
    assert len(load_previous_attempts(tmp_path, OutputFolder.at(tmp_path), plan)) == 2


async def test_resume_makes_again_what_is_defined_otherwise_now(tmp_path: Path, kit: Any) -> None:
    await Runner(tmp_path)(kit.plan(kit.case("a")), kit.Script(lambda *_: "yes"))
    changed = kit.plan(kit.case("a"))
    object.__setattr__(changed.sets[0].cases[0], "digest", "another")
    assert len(load_previous_attempts(tmp_path, OutputFolder.at(tmp_path / "out"), changed)) == 0


def test_resume_without_a_run_says_so(tmp_path: Path, kit: Any) -> None:
    with pytest.raises(ResultsError, match="no run to resume"):
        load_previous_attempts(tmp_path, OutputFolder.at(tmp_path), kit.plan(kit.case("a")))


async def test_a_full_disk_is_reported_and_ends_the_run(kit: Any, tmp_path: Path) -> None:
    with files_of_at_most(100), pytest.raises(OutputError, match="cannot be written: File too large"):
        await Runner(tmp_path)(kit.plan(kit.case("a")), kit.Script(lambda *_: "yes"))


@pytest.mark.parametrize(
    "text", ["\ud800 lone", "\0 nul", "\u202e rtl", "x" * 2_000_000, "::set-output name=x::y\r##[add-mask]y"]
)
async def test_hostile_answers_are_kept_whole_in_the_transcript(tmp_path: Path, kit: Any, text: str) -> None:
    await Runner(tmp_path)(kit.plan(kit.case("a")), kit.Script(lambda *_: text))
    ((number, _, line),) = read_lines(tmp_path / ATTEMPTS)
    assert json.loads(line)["case"] == "a"
    assert parse_attempt(tmp_path / ATTEMPTS, number, line).turns[0].response_text == text


async def test_excerpts_stay_small_whatever_was_said(tmp_path: Path, kit: Any) -> None:
    result = await Runner(tmp_path)(kit.plan(kit.case("a")), kit.Script(lambda *_: "y" * 5_000_000))
    assert len(result.model_dump_json()) < 20_000


MADE_WITH = Provenance(code="c", environment=environment_digest(AgentConditions(agent="bot", path="bot")), settings="s")


@pytest.mark.parametrize(
    ("now", "made", "said"),
    [
        ({}, 0, ""),
        ({"code": "another"}, 2, "files of the checkout changed"),
        ({"settings": "another"}, 2, "the agent's settings changed"),
    ],
)
async def test_resume_keeps_what_was_made_with_the_same(
    tmp_path: Path, kit: Any, now: dict[str, str], made: int, said: str
) -> None:
    plan = kit.plan(kit.case("a"), kit.case("b"))
    await Runner(tmp_path)(plan, kit.Script(lambda *_: "yes"), PreviousAttempts({"bot": MADE_WITH}))
    driver = kit.Script(lambda *_: "no")
    kept = load_previous_attempts(tmp_path, OutputFolder.at(tmp_path), plan, {"bot": MADE_WITH.model_copy(update=now)})
    result = await Runner(tmp_path)(plan, driver, kept)
    assert len(driver.opened) == made
    assert said in "".join(kept.warnings())
    (score, _) = (case.attempts[0].scores[1].score for case in result.sets[0].cases)
    assert score == (0.0 if made else 1.0)


async def test_resume_makes_again_what_ran_in_another_environment_and_says_so_once(tmp_path: Path, kit: Any) -> None:
    class Newer(kit.Script):  # type: ignore[name-defined,misc]  # the folder's own driver, known at run time
        async def start(self) -> AgentConditions:
            return AgentConditions(agent="bot", path="bot", adk_version="9.9")

    plan = kit.plan(kit.case("a"), kit.case("b"))
    await Runner(tmp_path)(plan, kit.Script(lambda *_: "yes"), PreviousAttempts({"bot": MADE_WITH}))
    driver, runner = Newer(lambda *_: "no"), Runner(tmp_path)
    await runner(plan, driver, load_previous_attempts(tmp_path, OutputFolder.at(tmp_path), plan, {"bot": MADE_WITH}))
    assert len(driver.opened) == 2
    notices = [event.text for event in runner.events if isinstance(event, Notice)]
    assert notices == ["bot: attempts of the earlier run are not kept, because the agent's environment changed"]


async def test_resume_keeps_answers_but_not_what_other_judges_said_of_them(tmp_path: Path, kit: Any) -> None:
    plan = kit.plan(kit.case("a"))
    await Runner(tmp_path)(plan, kit.Script(lambda *_: "yes"), PreviousAttempts({"bot": MADE_WITH}))
    (key,) = (planned.key for planned in plan.attempts())
    (kept,) = (load_previous_attempts(tmp_path, OutputFolder.at(tmp_path / "x"), plan, {"bot": MADE_WITH}).get(key),)
    assert len(kept.scores) == 2
    other = load_previous_attempts(
        tmp_path, OutputFolder.at(tmp_path / "x"), plan, {"bot": MADE_WITH.model_copy(update={"judges": "elsewhere"})}
    )
    assert other.get(key).turns == kept.turns
    assert other.get(key).scores == ()


async def test_a_transcript_that_does_not_say_what_made_it_is_made_again(tmp_path: Path, kit: Any) -> None:
    plan = kit.plan(kit.case("a"))
    await Runner(tmp_path)(plan, kit.Script(lambda *_: "yes"))
    assert len(load_previous_attempts(tmp_path, OutputFolder.at(tmp_path / "x"), plan, {"bot": MADE_WITH})) == 0
