"""The loop after the first pass: what the gate asks for is made, marked, counted and bounded."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.agents.base import SessionRequest
from agent_eval_action.folders import OutputFolder
from agent_eval_action.gate.next_step import Run, Step, Stop
from agent_eval_action.llm.budget import Meter, SpendingLimits
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.run_result import (
    AgentConditions,
    AttemptError,
    Base,
    ErrorKind,
    Provenance,
    RunResult,
    RunStatus,
)
from agent_eval_action.results.transcripts import ATTEMPTS, parse_attempt, read_lines
from agent_eval_action.run.attempt_runner import StallDetector, interleave
from agent_eval_action.run.base_agents import AgentGroup, LazyBaseAgents
from agent_eval_action.run.events import AgentStarting, AttemptStarted, Event, Notice, RerunsPlanned
from agent_eval_action.run.orchestrator import StopRequest
from agent_eval_action.run.plan import Plan
from agent_eval_action.run.resume import PreviousAttempts, load_previous_attempts
from support.plan_runner import run_plan

BASE = "b" * 40
BROKEN = AttemptError(kind=ErrorKind.EXCEPTION, message="ValueError: no")


def without(agents: frozenset[str], reason: str) -> AgentGroup:
    """A base that can run none of these agents."""
    return AgentGroup("base", commit=BASE, missing=dict.fromkeys(agents, reason))


def key(case: str) -> CaseKey:
    return CaseKey("bot", "set", case)


@dataclass
class Asked:
    """A gate that asks for these steps in turn and keeps what it was told."""

    steps: list[Step]
    control: list[bool] = field(default_factory=list)
    forever: bool = False

    def __call__(self, result: RunResult, *, control: bool) -> Step:
        del result
        self.control.append(control)
        if self.forever:
            return self.steps[0]
        return self.steps.pop(0) if self.steps else Stop("all said")


class Loop:
    """Runs a plan of scripted drivers through the loop."""

    def __init__(self, out: Path, gate: Asked) -> None:
        self.out, self.gate = out, gate
        self.events: list[Event] = []
        self.control = asyncio.Event()
        self.stop = StopRequest()
        self.limits = SpendingLimits()
        self.max_time: float | None = None
        self.stall_timeout: float | None = None
        self.progress = StallDetector()
        self.base: Callable[[frozenset[str]], AgentGroup] | None = None
        self.fixed: frozenset[str] = frozenset()
        self.passes = 0
        self.concurrency = 4

    async def __call__(self, plan: Plan, driver: Any, kept: PreviousAttempts | None = None) -> RunResult:
        async def opened(agents: frozenset[str]) -> AgentGroup:
            assert self.base is not None
            return self.base(agents)

        names = {planned.agent for planned in plan.sets}
        head = AgentGroup.start("head", dict.fromkeys(names, driver), replay_only=self.fixed)
        orchestrator = await run_plan(
            self.out,
            plan,
            head,
            stop=self.stop,
            orchestrate={
                "max_time": self.max_time,
                "stall_timeout": self.stall_timeout,
                "next_step": self.gate,
                "base_agents": LazyBaseAgents(opened, BASE) if self.base else None,
                "base_passes": self.passes,
            },
            concurrency=self.concurrency,
            meter=Meter(self.limits),
            emit=self.emit,
            previous=PreviousAttempts() if kept is None else kept,
            stall=self.progress,
        )
        return orchestrator.result("now")

    def emit(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, AgentStarting) and event.step == "starts":
            self.control.set()

    def written(self) -> list[tuple[str, int, str, str]]:
        found = [parse_attempt(self.out / ATTEMPTS, n, line) for n, _, line in read_lines(self.out / ATTEMPTS)]
        return sorted((one.case, one.repeat, one.arm, one.purpose) for one in found)

    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]


@pytest.fixture
def kit(scripted: type[Any]) -> Any:
    """Everything of this folder's conftest."""
    return sys.modules[scripted.__module__]


def attempts(result: RunResult, case: int = 0) -> list[tuple[int, str]]:
    return [(attempt.repeat, attempt.purpose) for attempt in result.sets[0].cases[case].attempts]


async def test_what_the_gate_asks_for_is_made_and_marked_apart_from_the_first_pass(tmp_path: Path, kit: Any) -> None:
    asked = Asked(
        [
            Run("rerun", ((key("a"), 2),), "a fell"),
            Run("suite", ((key("a"), 1), (key("b"), 2)), "in doubt"),
        ]
    )
    loop = Loop(tmp_path, asked)
    driver = kit.Script(lambda *_: "yes")
    result = await loop(kit.plan(kit.case("a"), kit.case("b")), driver)
    assert attempts(result) == [(0, "first"), (1, "rerun"), (2, "rerun"), (3, "suite")]
    assert attempts(result, 1) == [(0, "first"), (1, "suite"), (2, "suite")]
    assert (result.totals.attempts, result.totals.extra, result.totals.control) == (7, 5, 0)
    assert len(loop.written()) == len(driver.opened) == 7
    more = [(event.attempts, event.purpose, event.why) for event in loop.events if isinstance(event, RerunsPlanned)]
    assert more == [(2, "rerun", "a fell"), (3, "suite", "in doubt")]
    assert all(attempt.scores for case in result.sets[0].cases for attempt in case.attempts)


async def test_repeats_of_the_first_pass_are_numbered_before_what_is_run_again(tmp_path: Path, kit: Any) -> None:
    loop = Loop(tmp_path, Asked([Run("rerun", ((key("a"), 1),), "a fell")]))
    result = await loop(kit.plan(kit.case("a"), repeats=3), kit.Script(lambda *_: "yes"))
    assert attempts(result) == [(0, "first"), (1, "first"), (2, "first"), (3, "rerun")]


async def test_nothing_asked_for_is_nothing_run(tmp_path: Path, kit: Any) -> None:
    driver = kit.Script(lambda *_: "yes")
    result = await Loop(tmp_path, Asked([]))(kit.plan(kit.case("a")), driver)
    assert (len(driver.opened), result.totals.extra, result.cut_short, result.base) == (1, 0, "", None)


async def test_several_suspects_take_turns(tmp_path: Path, kit: Any) -> None:
    loop = Loop(tmp_path, Asked([Run("rerun", ((key("a"), 3), (key("b"), 3)), "fell")]))
    driver = kit.Script(lambda *_: "yes")
    await loop(kit.plan(kit.case("a"), kit.case("b")), driver)
    assert [request.key.repeat for request in driver.opened] == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_the_control_runs_on_drivers_of_its_own_and_is_kept_apart(tmp_path: Path, kit: Any) -> None:
    released: list[bool] = []
    base = kit.Script(lambda *_: "base says")
    head = kit.Script(lambda *_: "yes")
    asked = Asked([Run("control", ((key("a"), 2),), "as bad on main?")])
    loop = Loop(tmp_path, asked)
    loop.base = lambda agents: AgentGroup.start(
        "base", dict.fromkeys(agents, base), commit=BASE, release=lambda: released.append(True)
    )
    result = await loop(kit.plan(kit.case("a"), kit.case("b")), head)
    case = result.sets[0].cases[0]
    assert [(one.repeat, one.arm, one.purpose) for one in case.control] == [
        (0, "base", "control"),
        (1, "base", "control"),
    ]
    assert case.control[0].turns[0].response == "base says"
    assert attempts(result) == [(0, "first")]
    assert (result.totals.attempts, result.totals.control) == (2, 2)
    assert result.base is not None
    assert (result.base.commit, result.base.unavailable) == (BASE, "")
    assert asked.control == [True, True]
    assert released == [True]
    assert (len(head.opened), len(base.opened)) == (2, 2)


async def test_the_control_and_this_change_take_turns(tmp_path: Path, kit: Any) -> None:
    base, head = kit.Script(lambda *_: "yes"), kit.Script(lambda *_: "yes")
    loop = Loop(tmp_path, Asked([Run("control", ((key("a"), 3),), "as bad on main?", ((key("a"), 2),))]))
    loop.concurrency = 1
    loop.base = lambda agents: AgentGroup.start("base", dict.fromkeys(agents, base), commit=BASE)
    result = await loop(kit.plan(kit.case("a"), kit.case("b")), head)
    order = [event.key.arm for event in loop.events if isinstance(event, AttemptStarted)]
    assert order[2:] == ["base", "head", "base", "head", "base"], "the first pass apart"
    assert attempts(result) == [(0, "first"), (1, "control"), (2, "control")]
    assert [one.arm for one in result.sets[0].cases[0].control] == ["base"] * 3
    assert (result.totals.extra, result.totals.control) == (2, 3)
    more = [(event.attempts, event.purpose) for event in loop.events if isinstance(event, RerunsPlanned)]
    assert more == [(5, "control")]


@pytest.mark.parametrize(
    ("base", "head", "order"),
    [(3, 2, "bhbhb"), (2, 2, "bhbh"), (10, 5, "bhbbhbbhbbhbbhb"), (1, 3, "hbhh"), (2, 0, "bb"), (0, 2, "hh")],
)
def test_turns_are_spread_evenly(base: int, head: int, order: str) -> None:
    there: list[Any] = ["b"] * base
    here: list[Any] = ["h"] * head
    assert interleave(there, here) == list(order)


async def test_the_base_is_started_beside_the_re_runs_and_makes_nothing_nobody_needs(tmp_path: Path, kit: Any) -> None:
    opened: list[int] = []
    base = kit.Script(lambda *_: "yes")
    loop = Loop(tmp_path, Asked([Run("rerun", ((key("a"), 2),), "fell")]))

    def begin(agents: frozenset[str]) -> AgentGroup:
        opened.append(len(loop.written()))
        return AgentGroup.start("base", dict.fromkeys(agents, base), commit=BASE)

    loop.base = begin
    result = await loop(kit.plan(kit.case("a")), kit.Script(lambda *_: "yes", lambda _: 0.02))
    assert opened == [1], "begun while the re-runs are made"
    assert (base.opened, result.totals.control, result.base) == ([], 0, None)
    steps = [event.step for event in loop.events if isinstance(event, AgentStarting)]
    assert steps == ["starts beside, in case a control is needed"]


@pytest.mark.parametrize("slow", [True, False])
async def test_waiting_for_the_base_to_start_is_reported(tmp_path: Path, kit: Any, slow: bool) -> None:
    class Slow(kit.Script):  # type: ignore[misc] # a class of a fixture
        async def start(self) -> AgentConditions | AttemptError:
            if slow:
                await loop.control.wait()
            return await super().start()  # type: ignore[no-any-return] # of a fixture's class

    steps: list[Step] = [Run("rerun", ((key("a"), 1),), "fell"), Run("control", ((key("a"), 1),), "on main?")]
    loop = Loop(tmp_path, Asked(steps))
    loop.base = lambda _: AgentGroup.start("base", {"bot": Slow(lambda *_: "yes")}, commit=BASE)
    await loop(kit.plan(kit.case("a")), kit.Script(lambda *_: "yes", lambda _: 0.05))
    steps_said = [event.step for event in loop.events if isinstance(event, AgentStarting)]
    assert steps_said == ["starts beside, in case a control is needed", *(["starts"] if slow else [])]
    assert [event.why for event in loop.events if isinstance(event, RerunsPlanned)] == ["fell", "on main?"]


async def test_a_base_begun_early_that_cannot_be_had_is_reported_only_where_it_is_needed(
    tmp_path: Path, kit: Any
) -> None:
    loop = Loop(tmp_path, Asked([Run("rerun", ((key("a"), 2),), "fell")]))
    loop.base = lambda agents: without(agents, "it is gone")
    result = await loop(kit.plan(kit.case("a")), kit.Script(lambda *_: "yes"))
    assert result.base is None
    assert not any("it is gone" in text for text in loop.notices())


async def test_each_agent_of_the_base_is_opened_once_and_all_are_given_back(tmp_path: Path, kit: Any) -> None:
    other = CaseKey("other", "set", "a")
    asked: list[frozenset[str]] = []
    released: list[frozenset[str]] = []
    steps: list[Step] = [
        Run("control", ((key("a"), 1),), "on main?"),
        Run("control", ((key("a"), 1), (other, 1)), "on main?"),
    ]
    loop = Loop(tmp_path, Asked(steps))

    def begin(agents: frozenset[str]) -> AgentGroup:
        asked.append(agents)
        drivers = {name: kit.Script(lambda *_: "yes") for name in agents}
        return AgentGroup.start("base", drivers, commit=BASE, release=lambda: released.append(agents))

    loop.base = begin
    sets = (kit.planned_set(kit.case("a")), kit.planned_set(kit.case("a"), agent="other"))
    result = await loop(Plan(sets), kit.Script(lambda *_: "yes"))
    assert asked == [{"bot"}, {"other"}]
    assert sorted(map(sorted, released)) == [["bot"], ["other"]]
    assert result.totals.control == 3


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (SpendingLimits(calls=4), "the limit of 4 model calls was reached"),
        (SpendingLimits(tokens=40), "the limit of 40 tokens was reached"),
        (0.4, "max_time of 0.4 s was reached"),
    ],
)
async def test_a_limit_before_the_control_says_that_it_could_have_been_made(
    tmp_path: Path, kit: Any, limit: SpendingLimits | float, said: str
) -> None:
    steps: list[Step] = [Run("rerun", ((key("a"), 1),), "fell"), Run("control", ((key("a"), 3),), "on main?")]
    loop = Loop(tmp_path, Asked(steps))
    if isinstance(limit, SpendingLimits):
        loop.limits = limit
    else:
        loop.max_time = limit
    base = kit.Script(lambda *_: "yes", lambda _: 60.0)
    loop.base = lambda agents: AgentGroup.start("base", dict.fromkeys(agents, base), commit=BASE)
    result = await loop(kit.plan(kit.case("a")), kit.Script(lambda *_: "yes", tokens=10))
    assert result.cut_short == said
    assert result.base == Base(commit=BASE)
    assert result.totals.control == 0


async def test_a_limit_leaves_nothing_open_where_the_base_cannot_be_had(tmp_path: Path, kit: Any) -> None:
    steps: list[Step] = [Run("rerun", ((key("a"), 1),), "fell"), Run("control", ((key("a"), 3),), "on main?")]
    loop = Loop(tmp_path, Asked(steps))
    loop.limits = SpendingLimits(calls=4)
    loop.base = lambda agents: without(agents, "it is gone")
    result = await loop(kit.plan(kit.case("a")), kit.Script(lambda *_: "yes", tokens=10))
    assert result.base == Base(commit=BASE, unavailable="it is gone")


async def test_a_limit_met_by_the_base_that_is_the_baseline_makes_the_run_incomplete(tmp_path: Path, kit: Any) -> None:
    loop = Loop(tmp_path, Asked([]))
    loop.limits, loop.passes, loop.concurrency = SpendingLimits(calls=8), 20, 1
    loop.base = lambda _: AgentGroup.start(
        "base", {"bot": kit.Script(lambda *_: "yes", lambda _: 0.01, tokens=10)}, commit=BASE
    )
    result = await loop(kit.plan(kit.case("a")), kit.Script(lambda *_: "yes", tokens=10))
    assert result.status is RunStatus.LIMITED
    assert (
        result.cut_short == "the limit of 8 model calls was reached while the base commit's agent ran as the baseline"
    )


async def test_no_base_is_reported_and_the_control_not_asked_for_again(tmp_path: Path, kit: Any) -> None:
    asked = Asked([Run("control", ((key("a"), 2),), "as bad on main?")])
    loop = Loop(tmp_path, asked)
    loop.base = lambda agents: without(agents, "the base commit is not in this clone")
    result = await loop(kit.plan(kit.case("a")), kit.Script(lambda *_: "yes"))
    assert asked.control == [True, False]
    assert result.base is not None
    assert result.base.unavailable == "the base commit is not in this clone"
    assert loop.notices() == [
        "no control: the base commit is not in this clone; the verdict stands on history",
    ]


@pytest.mark.parametrize("breaks", ["start", "answer"])
async def test_a_base_agent_that_cannot_be_run_is_reported_and_is_no_evidence(
    tmp_path: Path, kit: Any, breaks: str
) -> None:
    class Broken(kit.Script):  # type: ignore[misc] # a class of a fixture
        async def start(self) -> AgentConditions | AttemptError:
            return BROKEN if breaks == "start" else await super().start()

    asked = Asked([Run("control", ((key("a"), 2),), "as bad on main?")])
    loop = Loop(tmp_path, asked)
    loop.base = lambda _: AgentGroup.start("base", {"bot": Broken(lambda *_: BROKEN)}, commit=BASE)
    result = await loop(kit.plan(kit.case("a")), kit.Script(lambda *_: "yes"))
    assert asked.control == [True, False]
    assert result.base is not None
    assert result.base.unavailable == "the agent of bbbbbbbbbb could not be run: ValueError: no"
    assert all(attempt.error is not None for attempt in result.sets[0].cases[0].control)


@pytest.mark.parametrize("lack", ["lacks", "does not start"])
async def test_an_agent_the_base_cannot_run_leaves_the_control_of_the_others(
    tmp_path: Path, kit: Any, lack: str
) -> None:
    class Broken(kit.Script):  # type: ignore[misc] # a class of a fixture
        async def start(self) -> AgentConditions | AttemptError:
            return BROKEN

    other = CaseKey("other", "set", "a")
    asked = Asked([Run("control", ((key("a"), 1), (other, 1)), "on main?"), Run("control", ((key("a"), 1),), "more?")])
    loop = Loop(tmp_path, asked)
    missing = {"other": "it is new"} if lack == "lacks" else {}
    drivers = {"bot": kit.Script(lambda *_: "yes")} | ({} if missing else {"other": Broken(lambda *_: "yes")})
    loop.base = lambda _: replace(
        AgentGroup.start("base", drivers, commit=BASE, missing=missing), absent=frozenset(missing)
    )
    sets = (kit.planned_set(kit.case("a")), kit.planned_set(kit.case("a"), agent="other"))
    result = await loop(Plan(sets), kit.Script(lambda *_: "yes"))
    assert asked.control == [True, True, True]
    assert result.totals.control == 2
    why = missing.get("other", "the agent of bbbbbbbbbb could not be run: ValueError: no")
    assert result.base is not None
    assert (result.base.unavailable, result.base.unavailable_agents) == ("", {"other": why})
    assert result.base.absent == (("other",) if missing else ())
    assert loop.notices() == [f"no control of other: {why}; its verdict stands on history"]


async def test_there_is_no_control_once_every_agent_of_the_base_is_known_not_to_run(tmp_path: Path, kit: Any) -> None:
    other = CaseKey("other", "set", "a")
    asked = Asked([Run("control", ((key("a"), 1),), "on main?"), Run("control", ((other, 1),), "on main?")])
    loop = Loop(tmp_path, asked)
    loop.base = lambda agents: without(agents, f"no {' '.join(agents)}")
    sets = (kit.planned_set(kit.case("a")), kit.planned_set(kit.case("a"), agent="other"))
    result = await loop(Plan(sets), kit.Script(lambda *_: "yes"))
    assert asked.control == [True, True, False]
    assert result.base == Base(commit=BASE, unavailable="no other; no bot")


async def test_a_gate_that_never_has_enough_is_not_asked_for_ever(tmp_path: Path, kit: Any) -> None:
    def answer(request: SessionRequest, _: int) -> str | AttemptError:
        return "yes" if request.key.repeat == 0 else BROKEN

    loop = Loop(tmp_path, Asked([Run("rerun", ((key("a"), 1),), "fell")], forever=True))
    result = await loop(kit.plan(kit.case("a")), kit.Script(answer))
    assert result.cut_short == "what was run again could not be measured"
    assert len(loop.gate.control) == 1
    assert result.status is RunStatus.COMPLETE


async def test_a_limit_of_the_gate_is_reported(tmp_path: Path, kit: Any) -> None:
    loop = Loop(tmp_path, Asked([Stop("the limit of extra runs is reached", limited=True)]))
    result = await loop(kit.plan(kit.case("a")), kit.Script(lambda *_: "yes"))
    assert result.cut_short == "the limit of extra runs is reached"


async def test_a_recording_is_not_run_again(tmp_path: Path, kit: Any) -> None:
    loop = Loop(tmp_path, Asked([Run("rerun", ((key("a"), 1),), "fell")]))
    loop.fixed = frozenset({"bot"})
    driver = kit.Script(lambda *_: "yes")
    result = await loop(kit.plan(kit.case("a")), driver)
    assert (len(driver.opened), result.cut_short) == (1, "a recording cannot be run again")


@pytest.mark.parametrize("limits", [SpendingLimits(calls=5), SpendingLimits(tokens=50), SpendingLimits(usd=15e-6)])
async def test_a_budget_met_while_running_again_leaves_the_rest_undone(
    tmp_path: Path, kit: Any, limits: SpendingLimits
) -> None:
    loop = Loop(tmp_path, Asked([Run("rerun", ((key("a"), 50),), "fell")], forever=True))
    loop.limits = limits
    result = await loop(kit.plan(kit.case("a"), kit.case("b")), kit.Script(lambda *_: "yes", lambda _: 0.005, 10))
    assert result.status is RunStatus.COMPLETE
    assert "was reached" in result.cut_short
    assert result.totals.extra == 1  # what is under way is counted: the limit is met exactly


async def test_a_budget_met_when_nothing_more_is_wanted_cuts_nothing_short(tmp_path: Path, kit: Any) -> None:
    loop = Loop(tmp_path, Asked([Run("rerun", ((key("a"), 2),), "fell")]))
    loop.limits = SpendingLimits(calls=6)
    result = await loop(kit.plan(kit.case("a")), kit.Script(lambda *_: "yes", tokens=10))
    assert (result.cut_short, result.totals.extra, loop.notices()) == ("", 2, [])


async def test_a_budget_met_in_the_first_pass_makes_the_run_incomplete(tmp_path: Path, kit: Any) -> None:
    asked = Asked([Run("rerun", ((key("c0"), 1),), "fell")])
    loop = Loop(tmp_path, asked)
    loop.limits = SpendingLimits(calls=1)
    cases = [kit.case(f"c{n}") for n in range(40)]
    driver = kit.Script(lambda *_: "yes", lambda _: 0.005, 10)
    result = await loop(kit.plan(*cases), driver)
    assert len(driver.opened) == 1
    assert result.status is RunStatus.LIMITED
    assert result.cut_short == "the limit of 1 model call was reached"
    assert asked.control == []
    kinds = {attempt.error.kind for case in result.sets[0].cases for attempt in case.attempts if attempt.error}
    assert kinds == {ErrorKind.STOPPED}


async def test_max_time_in_the_re_runs_leaves_a_complete_run(tmp_path: Path, kit: Any) -> None:
    def delay(request: SessionRequest) -> float:
        return 60.0 if request.key.repeat else 0.0

    loop = Loop(tmp_path, Asked([Run("rerun", ((key("a"), 2),), "fell")]))
    loop.max_time = 0.4
    result = await loop(kit.plan(kit.case("a")), kit.Script(lambda *_: "yes", delay))
    assert (result.status, result.cut_short) == (RunStatus.COMPLETE, "max_time of 0.4 s was reached")
    assert attempts(result) == [(0, "first")]


class Watched(StallDetector):
    """Ends nothing; remembers what the loop would be excused by, and how often something was answered."""

    answered = 0

    def record_progress(self) -> None:
        self.answered += 1
        super().record_progress()

    async def wait_for_stall(self, seconds: float, *, excused: Callable[[], bool]) -> str:
        self.seconds, self.excused = seconds, excused
        await asyncio.Event().wait()
        return ""


async def test_the_start_of_either_arm_is_excused_and_its_end_is_progress(tmp_path: Path, kit: Any) -> None:
    watched = Watched()

    class Starting(kit.Script):  # type: ignore[misc] # a class of a fixture
        async def start(self) -> AgentConditions | AttemptError:
            await asyncio.sleep(0.01)  # nobody watches before the first pass has begun
            self.excused, self.before = watched.excused(), watched.answered
            return await super().start()

        async def open(self, request: SessionRequest) -> Any:
            self.still_excused, self.after = watched.excused(), watched.answered
            return await super().open(request)

    head, base = (Starting(lambda *_: "yes") for _ in range(2))
    loop = Loop(tmp_path, Asked([Run("control", ((key("a"), 1),), "on main?")]))
    loop.stall_timeout, loop.progress = 7.0, watched
    loop.base = lambda agents: AgentGroup.start("base", dict.fromkeys(agents, base), commit=BASE)
    await loop(kit.plan(kit.case("a")), head)
    assert watched.seconds == 7.0
    for arm in (head, base):
        assert (arm.excused, arm.still_excused) == (True, False)
        assert arm.after > arm.before


@pytest.mark.parametrize("arm", ["head", "base"])
async def test_a_stop_in_the_middle_keeps_what_is_finished_and_gives_everything_back(
    tmp_path: Path, kit: Any, arm: str
) -> None:
    released: list[bool] = []

    def delay(request: SessionRequest) -> float:
        later = request.key.repeat >= (2 if arm == "head" else 1)
        return 60.0 if later and request.key.arm == arm else 0.0

    steps: list[Step] = [Run("rerun", ((key("a"), 2),), "fell"), Run("control", ((key("a"), 2),), "on main?")]
    loop = Loop(tmp_path, Asked(steps if arm == "head" else steps[1:]))
    base = kit.Script(lambda *_: "yes", delay)
    loop.base = lambda _: AgentGroup.start("base", {"bot": base}, commit=BASE, release=lambda: released.append(True))
    asyncio.get_running_loop().call_later(0.3, loop.stop.request, RunStatus.INTERRUPTED)
    result = await loop(kit.plan(kit.case("a")), kit.Script(lambda *_: "yes", delay))
    assert result.status is RunStatus.INTERRUPTED
    done = [("a", 0, "head", "first"), ("a", 1, "head", "rerun")]
    assert loop.written() == (done if arm == "head" else [("a", 0, "base", "control"), ("a", 0, "head", "first")])
    assert released == [True]


async def test_resume_after_an_edit_keeps_what_the_base_commits_agent_said(tmp_path: Path, kit: Any) -> None:
    plan, then = kit.plan(kit.case("a")), Provenance(code="then", settings="s")
    made = []
    for code in ("then", "now"):
        loop = Loop(tmp_path, Asked([Run("control", ((key("a"), 1),), "on main?")]))
        head, base = kit.Script(lambda *_: "yes"), kit.Script(lambda *_: "yes")
        loop.base = lambda _, base=base: AgentGroup.start("base", {"bot": base}, commit=BASE)
        expected = {"bot": then.model_copy(update={"code": code})}
        out = OutputFolder.at(tmp_path)
        kept = load_previous_attempts(tmp_path, out, plan, expected) if made else PreviousAttempts(expected)
        await loop(plan, head, kept)
        made.append((len(head.opened), len(base.opened)))
    assert made == [(1, 1), (1, 0)]


async def test_resume_keeps_re_runs_and_the_control_of_the_same_base(tmp_path: Path, kit: Any) -> None:
    plan = kit.plan(kit.case("a"))

    def steps() -> Asked:
        return Asked([Run("rerun", ((key("a"), 2),), "fell"), Run("control", ((key("a"), 1),), "on main?")])

    def base(commit: str, driver: Any) -> Callable[[frozenset[str]], AgentGroup]:
        return lambda _: AgentGroup.start("base", {"bot": driver}, commit=commit)

    first = Loop(tmp_path, steps())
    first.base = base(BASE, kit.Script(lambda *_: "yes"))
    await first(plan, kit.Script(lambda *_: "yes"))
    for commit, made in ((BASE, 0), ("c" * 40, 1)):
        again = Loop(tmp_path, steps())
        head, other = kit.Script(lambda *_: "yes"), kit.Script(lambda *_: "yes")
        again.base = base(commit, other)
        result = await again(plan, head, load_previous_attempts(tmp_path, OutputFolder.at(tmp_path), plan))
        assert (len(head.opened), len(other.opened)) == (0, made)
        assert (result.totals.extra, result.totals.control) == (2, 1)
        assert attempts(result) == [(0, "first"), (1, "rerun"), (2, "rerun")]
