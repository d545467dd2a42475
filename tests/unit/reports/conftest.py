"""Results as small as a report needs them, built by hand: every field of a conclusion can be set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.reports import ReportInput, results_json
from agent_eval_action.results.decision import (
    CallBrief,
    ChangeKind,
    CriterionChange,
    Decision,
    PairChange,
    Stat,
    TurnBrief,
    Verdict,
)
from agent_eval_action.results.findings import text_note
from agent_eval_action.results.run_result import (
    AttemptSummary,
    CaseResult,
    Conditions,
    CriterionInfo,
    CriterionScore,
    Durations,
    RunResult,
    ScoreStatus,
    SetResult,
    Totals,
    TurnScore,
)
from support.messages import text_finding, text_reason

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
CRITERION = "tool_trajectory_avg_score"


def stat(value: float) -> Stat:
    return Stat(n=1, mean=value, low=value, high=value)


class Builder:
    """Makes results of one set; ``case`` gives a case and its conclusion, ``result`` all of them."""

    criterion = CRITERION
    stat = staticmethod(stat)

    def __init__(self) -> None:
        self.cases: list[CaseResult] = []
        self.pairs: list[PairChange] = []

    def case(self, name: str, kind: ChangeKind = ChangeKind.SAME, now: float | None = 1.0, **fields: Any) -> Builder:
        """``fields``: those of PairChange, and attempt, expected, line of the case."""
        attempt = fields.pop("attempt", None) or self.attempt(now)
        expected = fields.pop("expected", ())
        line = fields.pop("line", 7)
        attempts = attempt if isinstance(attempt, tuple) else (attempt,)
        self.cases.append(CaseResult(case=name, line=line, digest="d", expected=expected, attempts=attempts))
        defaults: dict[str, Any] = {"threshold": 1.0, "current": stat(now) if now is not None else None}
        self.pair(name, kind, **defaults | fields)
        return self

    def pair(self, name: str, kind: ChangeKind, **fields: Any) -> Builder:
        key = {"agent": "dice", "eval_set": "basics", "criterion": CRITERION}
        if isinstance(said := fields.get("reason"), str):
            fields["reason"] = text_reason(said)
        self.pairs.append(PairChange(case=name, kind=kind, **key | fields))
        return self

    def attempt(self, score: float | None = 1.0, **fields: Any) -> AttemptSummary:
        scores: tuple[CriterionScore, ...] = ()
        if score is not None:
            turns = (TurnScore(turn=0, score=score, reason="turn reason"), TurnScore(turn=1, score=1.0))
            scores = (
                CriterionScore(
                    criterion=CRITERION, status=ScoreStatus.SCORED, score=score, reason="score reason", turns=turns
                ),
            )
        defaults: dict[str, Any] = {"repeat": 0, "scores": scores, "durations": Durations(total=1.5)}
        return AttemptSummary(**defaults | fields)

    def turn(self, *calls: CallBrief, user: str = "hello", response: str = "") -> TurnBrief:
        return TurnBrief(user=user, calls=calls, response=response)

    def call(self, name: str, **args: Any) -> CallBrief:
        return CallBrief(name=name, args=args)

    def result(self, outcome: Verdict = Verdict.PASS, **fields: Any) -> RunResult:
        """``fields`` are the decision's, and ``criteria_infos`` and ``run`` for the rest of the result."""
        infos: Sequence[CriterionInfo] = fields.pop("criteria_infos", (CriterionInfo(name=CRITERION, digest="c"),))
        run = fields.pop("run", {})
        fields["reasons"] = (text_finding("blocks", fields.pop("reason", "because")),)
        fields["notes"] = tuple(map(text_note, fields.pop("notes", ())))
        defaults = {"criteria": (CriterionChange(criterion=CRITERION, pairs=len(self.pairs)),)}
        one = SetResult(
            agent="dice", eval_set="basics", path="evals/b.test.json", criteria=tuple(infos), cases=tuple(self.cases)
        )
        decision = Decision(outcome=outcome, pairs=tuple(self.pairs), **defaults | fields)
        base: dict[str, Any] = {
            "started_at": "2026-05-07T10:30:00+00:00",
            "conditions": Conditions(tool_version="0.1.0"),
            "sets": (one,),
            "totals": Totals(cases=len(self.cases), attempts=len(self.cases)),
        }
        return RunResult(decision=decision, **base | run)

    def report(self, outcome: Verdict = Verdict.PASS, **fields: Any) -> ReportInput:
        return ReportInput(self.result(outcome, **fields))


@pytest.fixture
def build() -> Builder:
    return Builder()


@pytest.fixture(scope="session")
def golden_result() -> Callable[[str], RunResult]:
    """A scenario's result by name."""
    return lambda name: results_json.read(GOLDEN / name / "results.json")


@pytest.fixture(scope="session")
def large_result(golden_result: Callable[[str], RunResult]) -> Callable[[int], RunResult]:
    """The golden regression with its cases repeated under new names: ``n`` cases, most of them not as they were."""

    def make(n: int) -> RunResult:
        one = golden_result("regressed")
        owner = one.sets[0]
        pairs: dict[str, list[PairChange]] = {}
        assert one.decision is not None
        for pair in one.decision.pairs:
            pairs.setdefault(pair.case, []).append(pair)
        cases, all_pairs = [], []
        for i in range(n):
            template = owner.cases[i % len(owner.cases)]
            name = f"{template.case}_{i:05}"
            cases.append(template.model_copy(update={"case": name}))
            all_pairs += [pair.model_copy(update={"case": name}) for pair in pairs[template.case]]
        decision = one.decision.model_copy(update={"pairs": tuple(all_pairs)})
        return one.model_copy(
            update={"sets": (owner.model_copy(update={"cases": tuple(cases)}),), "decision": decision}
        )

    return make
