"""What a judge said of one attempt, as plain lines: the turns in which it objects, what is wrong first.

The lines hold the judge's and the agent's words as they are: whoever shows them escapes them.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent_eval_action.model.judged import RubricScore, SentenceLabel, Votes
from agent_eval_action.model.result import CriterionScore, TurnScore
from agent_eval_action.reports import format as fmt

_GOOD_SENTENCES = frozenset({"supported", "not_applicable"})
_LINE = 320
_RUBRICS = 12
_SENTENCES = 8


def judged_lines(score: CriterionScore) -> list[str]:
    """Verdicts per rubric and sentences with their labels; none of turns in which nothing is wrong."""
    return [line for turn in score.turns for line in _of_turn(turn)]


def votes_text(votes: Votes | None) -> str:
    """``3 of 3 votes yes``, with the samples that gave none."""
    if votes is None or not votes.yes + votes.no:
        return ""
    said = f"{votes.yes} of {fmt.plural(votes.yes + votes.no, 'vote')} yes"
    return f"{said}, {votes.left_out} left out" if votes.left_out else said


def _of_turn(turn: TurnScore) -> Iterator[str]:
    if all(rubric.score == 1 for rubric in turn.rubrics) and all(map(_is_good, turn.sentences)):
        return
    yield f"turn {turn.turn + 1}"
    for line in (*_rubrics(turn.rubrics), *_sentences(turn.sentences)):
        yield " ".join(line[:_LINE].split("\n"))


def _rubrics(rubrics: tuple[RubricScore, ...]) -> Iterator[str]:
    in_order = sorted(rubrics, key=lambda rubric: 2.0 if rubric.score is None else rubric.score)
    for rubric in in_order[:_RUBRICS]:
        mark = "?" if rubric.score is None else "✓" if rubric.score >= 1 else "✗"
        weight = f", weight {rubric.weight:g}" if rubric.weight != 1 else ""
        counted = votes_text(rubric.votes) or "no vote"
        why = f": {rubric.rationale}" if rubric.rationale and mark != "✓" else ""
        yield f"  {mark} {rubric.rubric_id} ({counted}{weight}){why}"
    if len(rubrics) > _RUBRICS:
        yield f"  … and {fmt.plural(len(rubrics) - _RUBRICS, 'more rubric')} in results.json"


def _is_good(sentence: SentenceLabel) -> bool:
    return sentence.label in _GOOD_SENTENCES


def _sentences(sentences: tuple[SentenceLabel, ...]) -> Iterator[str]:
    bad = [sentence for sentence in sentences if not _is_good(sentence)]
    if not sentences:
        return
    yield f"  {len(sentences) - len(bad)} of {fmt.plural(len(sentences), 'sentence')} supported or not applicable"
    for sentence in bad[:_SENTENCES]:
        why = f" – {sentence.rationale}" if sentence.rationale else ""
        yield f"  ✗ {sentence.label}: {sentence.sentence[: _LINE // 2]}{why}"
    if len(bad) > _SENTENCES:
        yield f"  … and {fmt.plural(len(bad) - _SENTENCES, 'more')} in results.json"
