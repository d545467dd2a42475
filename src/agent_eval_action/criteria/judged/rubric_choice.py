"""Which rubrics a turn is judged by: the criterion's own, then those of its type that the case and the turn have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent_eval_action.model.evalset import EvalCase, Rubric


def effective(own: Sequence[Rubric], case: EvalCase, turn: int, kind: str) -> tuple[Rubric, ...]:
    """The rubrics of one turn, in order. Those of a case without a type belong to no criterion, as in ADK.

    Raises ValueError, in one sentence, when there are none, when an id is there twice, or when one says nothing.
    """
    of_turn = case.turns[turn].rubrics if turn < len(case.turns) else None
    written = [*(case.rubrics or ()), *(of_turn or ())]
    chosen = (*own, *(rubric for rubric in written if rubric.type == kind))
    if problem := fault(chosen):
        raise ValueError(problem)
    if not chosen:
        others = f" (of type {kind}; there are {len(written)} of other types or of none)" if written else ""
        raise ValueError(f"there is no rubric to judge by: neither the criterion nor the case has one{others}")
    return chosen


def fault(rubrics: Iterable[Rubric]) -> str:
    """What is wrong with a list of rubrics, "" if nothing is."""
    seen: set[str] = set()
    for rubric in rubrics:
        if rubric.rubric_id in seen:
            return f"rubric `{rubric.rubric_id}` is there twice"
        seen.add(rubric.rubric_id)
        if not (rubric.rubric_content.text_property or "").strip():
            return f"rubric `{rubric.rubric_id}` has no text"
    return ""
