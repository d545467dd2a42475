"""ADK's custom_metrics: a user's function scores the case, in the user's interpreter."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from agent_eval_action.config.criteria import CustomMetric
from agent_eval_action.criteria.base import Criterion, Relaxation, Sample, relaxations
from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.results.evalset import FunctionReply
from agent_eval_action.results.run_result import CriterionInfo, CriterionScore, ScoreStatus, TurnScore


class CustomCriterion(Criterion):
    """One metric function; ``custom_criterion`` makes a subclass with the metric's name, function and scale.

    Options other than ``threshold`` are passed to the function as written.
    """

    model_config = ConfigDict(extra="allow")

    name: ClassVar[str] = "custom"
    function: ClassVar[str]
    place: ClassVar[str] = ""
    waits: ClassVar[bool] = True
    scale: ClassVar[tuple[float, float]] = (-math.inf, math.inf)

    threshold: float | None = Field(default=None, allow_inf_nan=False)

    @classmethod
    def relaxes(cls, old: CriterionInfo, new: CriterionInfo) -> tuple[Relaxation, ...]:
        found = relaxations(old.options, new.options, cls.relaxed_when)
        if old.scoring_version == new.scoring_version:
            return found
        then, now = (info.scoring_version.rpartition(" ")[2] for info in (old, new))
        return (Relaxation("function", then, now), *found)

    def functions(self) -> tuple[str, ...]:
        return (self.function,)

    def version(self) -> str:
        return f"{self.scoring_version} {self.function}"

    async def score_case(self, sample: Sample) -> CriterionScore:
        functions = sample.context.functions
        if functions is None:
            return self.no_score(ScoreStatus.ERROR, "this run has no process for metric functions")
        case, options = sample.case, {"threshold": self.threshold, **(self.model_extra or {})}
        turns = []
        for number, turn in enumerate(sample.actual):  # with the rubrics that google-adk adds
            own = case.turns[number].rubrics if number < len(case.turns) else None
            rubrics = (*(turn.rubrics or ()), *(case.rubrics or ()), *(own or ()))
            turns.append(_json(turn.model_copy(update={"rubrics": rubrics}) if rubrics else turn))
        # as JSON: see the worker's ``Adk.arguments``
        arguments = {
            "metric": {"name": self.name, "function": self.function, "criterion": options},
            "actual": turns,
            "expected": None if case.conversation is None else [_json(turn) for turn in case.conversation],
            "scenario": _json(case.conversation_scenario) if case.conversation_scenario else None,
        }
        return self._read(await functions.call(self.function, arguments), len(sample.actual))

    def _read(self, reply: FunctionReply, turns: int) -> CriterionScore:
        if reply.error:
            return self._error(reply.error, traceback=reply.traceback)
        try:
            # the worker runs foreign code: check everything it reports
            score, status = _number(reply.value["score"]), str(reply.value["status"])[:40]
            scores = [_number(entry["score"]) for entry in reply.value["turns"]]
        except (ValueError, KeyError, TypeError) as error:
            return self._error(f"{self.function}: {error}")
        if scores and len(scores) != turns:
            found = f"it gave scores for {plural(len(scores), 'turn')}, and there are {turns}"
            return self._error(f"{self.function}: {found}")
        if score is None:
            return self._error(f"{self.function} gave no score (its status: {status})")
        low, high = self.scale
        if not low <= score <= high:
            return self._error(f"{self.function} gave {score:g}, and its interval goes from {low:g} to {high:g}")
        passed = self.meets(score)
        reason = f"{self.function} gave {score:g}"
        if status in ("PASSED", "FAILED") and (status == "PASSED") is not passed:
            reason += f"; it says {status.lower()} itself, but the threshold decides"
        unscored = {"status": ScoreStatus.NOT_APPLICABLE, "reason": "the function scored no such turn"}
        by_turn = tuple(
            TurnScore(turn=number, **(unscored if score is None else {"score": score}))
            for number, score in enumerate(scores)
        )
        return self.result(score, reason=reason, turns=by_turn, details={"status": status})

    def _error(self, reason: str, **details: Any) -> CriterionScore:
        where = f" (configured at {self.place})" if self.place else ""
        return self.no_score(ScoreStatus.ERROR, f"{reason}{where}", details={k: v for k, v in details.items() if v})


def custom_criterion(name: str, metric: CustomMetric, place: str) -> type[CustomCriterion]:
    """The class of an entry of ``custom_metrics``; ``place`` is its location, for errors."""
    interval = metric.metric_info.metric_value_info.interval if metric.metric_info else None
    scale = (interval.min_value, interval.max_value) if interval else (-math.inf, math.inf)
    fields = {"name": name, "function": metric.code_config.name, "place": place, "scale": scale}
    return type("CustomCriterion", (CustomCriterion,), {"__module__": __name__, "__doc__": None, **fields})


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"its score is {str(value)[:80]}, not a number")
    return float(value)


def _json(value: BaseModel) -> dict[str, Any]:
    # google-adk's Invocation rejects unknown fields
    return value.model_dump(mode="json", exclude_none=True, exclude={"spans", "inner_events", "uncaptured", "unseen"})
