"""One plain sentence per pair: case, criterion, numbers, and the tool call that changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from agent_eval_action.gate.assess import Status, SuspectTest
from agent_eval_action.gate.calls import call_detail
from agent_eval_action.gate.compare import ComparedPair
from agent_eval_action.gate.suspects import describe_suspect
from agent_eval_action.gate.wording import SENTENCE, clip, number, numbers
from agent_eval_action.results.decision import ChangeKind
from agent_eval_action.results.history import TrajectoryRecord
from agent_eval_action.results.run_result import CaseKey

_NAME: Final = 100
_CRITERION: Final = 60
_QUIET: Final = frozenset({ChangeKind.SAME, ChangeKind.PASSING})


@dataclass(frozen=True)
class Writer:
    """Knows which case names need their eval set beside them, and what the baseline's agent called."""

    trajectories: Mapping[CaseKey, TrajectoryRecord] = field(default_factory=dict)
    ambiguous: frozenset[str] = frozenset()

    @classmethod
    def of(cls, keys: Iterable[CaseKey], trajectories: Mapping[CaseKey, TrajectoryRecord]) -> Writer:
        """A writer for the cases of one comparison."""
        named = Counter(key.case for key in set(keys))
        return cls(trajectories, frozenset(name for name, times in named.items() if times > 1))

    def case(self, key: CaseKey) -> str:
        """The case's name; with agent and set where another case has the same name."""
        parts = key if key.case in self.ambiguous else (key.case,)
        return " / ".join(clip(part, _NAME) for part in parts)

    def pair(self, pair: ComparedPair) -> str:
        """The sentence of a pair; "" where there is nothing to say."""
        if pair.kind in _QUIET:
            return ""
        name = f"`{self.case(pair.key)} › {clip(pair.criterion, _CRITERION)}`"
        return clip(f"{name} {_BODY.get(pair.kind, _moved)(pair)}{self._detail(pair)}", SENTENCE)

    def evidence(self, pair: ComparedPair, test: SuspectTest) -> str:
        """The sentence of a suspect: what main did, what this change did, and the base commit's agent just now."""
        name = f"`{self.case(pair.key)} › {clip(pair.criterion, _CRITERION)}`"
        detail = self._detail(pair) if test.status is not Status.CLEARED else ""
        return clip(f"{name} {describe_suspect(test)}{detail}", SENTENCE)

    def _detail(self, pair: ComparedPair) -> str:
        if pair.kind not in _EXPLAINED:
            return ""
        detail = call_detail(pair, self.trajectories.get(pair.key))
        return f": {clip(detail, SENTENCE // 2)}" if detail else ""


def _missed(pair: ComparedPair) -> str:
    if pair.current is None or pair.threshold is None:
        return "misses its threshold"
    score, threshold = numbers(pair.current.mean, pair.threshold)
    side = "above" if pair.goal == "minimize" else "below"
    return f"is {score}{_repeats(pair)}, {side} its threshold {threshold} ({_before(pair)})"


def _moved(pair: ComparedPair) -> str:
    if pair.current is None or pair.baseline is None:
        return "changed"
    before, after = numbers(pair.baseline.mean, pair.current.mean)
    verb = "rose" if pair.current.mean > pair.baseline.mean else "fell"
    tail = ", and meets its threshold again" if pair.kind is ChangeKind.FIXED else ""
    return f"{verb} from {before} to {after}{_repeats(pair)}{tail}"


def _alone(pair: ComparedPair) -> str:
    score = number(pair.current.mean) if pair.current else "not measured"
    return f"is {score}{_repeats(pair)}; not compared: {pair.incomparable}"


def _removed(pair: ComparedPair) -> str:
    score = number(pair.baseline.mean) if pair.baseline else "there"
    return (
        f"was {score} in the baseline{', with attempts below its threshold' if pair.below else ''}: {pair.incomparable}"
    )


def _not_measured(pair: ComparedPair) -> str:
    return f"could not be measured: {clip(pair.measured.error, SENTENCE // 2) if pair.measured else ''}"


def _not_applicable(pair: ComparedPair) -> str:
    if pair.measured is not None and pair.measured.unmeasured:
        return f"is {pair.measured.unmeasured}"
    reason = pair.measured.reason if pair.measured else ""
    return f"does not apply{f': {clip(reason, SENTENCE // 2)}' if reason else ''}"


def _before(pair: ComparedPair) -> str:
    if pair.baseline is None:
        return pair.incomparable or "no baseline"
    score = number(pair.baseline.mean)
    return f"baseline {score}, not comparable: {pair.incomparable}" if pair.incomparable else f"baseline {score}"


def _repeats(pair: ComparedPair) -> str:
    current = pair.current
    if current is None or pair.measured is None:
        return ""
    attempts = len(pair.measured.case.attempts) - pair.measured.not_applicable
    parts = []
    if current.n > 1:
        met = f", {current.passed} met it" if current.passed is not None else ""
        parts.append(f"mean of {current.n} attempts{met}")
    if pair.measured.errors:
        parts.append(f"{pair.measured.errors} of {attempts} attempts without a score")
    return f" ({'; '.join(parts)})" if parts else ""


_EXPLAINED: Final = frozenset(
    {ChangeKind.NEWLY_FAILING, ChangeKind.STILL_FAILING, ChangeKind.FAILING, ChangeKind.WORSE}
)
_BODY: Final[dict[ChangeKind, Callable[[ComparedPair], str]]] = {
    ChangeKind.NEWLY_FAILING: _missed,
    ChangeKind.STILL_FAILING: _missed,
    ChangeKind.FAILING: _missed,
    ChangeKind.NEW: _alone,
    ChangeKind.CHANGED: _alone,
    ChangeKind.REMOVED: _removed,
    ChangeKind.ERROR: _not_measured,
    ChangeKind.NOT_APPLICABLE: _not_applicable,
}
