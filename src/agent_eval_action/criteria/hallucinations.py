"""hallucinations_v1: a judge splits each answer into sentences, then labels which of them the context supports.

The sentences must be those of the text: none dropped, invented or repeated. Only letters and digits are compared. A
judge may leave out layout: spaces, markup, bullets, list numbers, link addresses.
"""

from __future__ import annotations

import asyncio
import html
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from agent_eval_action.criteria.base import Sample, TurnCriterion, worst_reasons
from agent_eval_action.criteria.grounding_context import Passage, passages
from agent_eval_action.criteria.judge import Answer, Judge, JudgedCriterion, as_json, ask_about
from agent_eval_action.diagnostics.reader import shorten
from agent_eval_action.llm.client import LlmError
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus, SentenceKind, SentenceLabel, TurnScore

_LAYOUT = re.compile(
    r"^[ \t>*+•-]*(?:\d{1,3}|[A-Za-z]|[ivxlc]{1,6})[.)](?=\s)"  # the number of a list's item
    r"|\[\^?\d{1,3}\]"  # a reference mark
    r"|(?<=\])\([^()\s]+(?:\s\"[^\"\n]*\")?\)"  # the address behind a link
    r"|</?[A-Za-z]{1,10}\s*/?>"  # a tag without attributes
    r"|^[ \t]*```[\w+-]+[ \t]*$",  # the language of a code block
    re.MULTILINE,
)


def sentences_of(text: str, cut: Sequence[str]) -> tuple[str, ...]:
    """Check a judge's sentences against the text; return them in order, without those that are only layout.

    Raises ValueError if they do not cover the text. Its message goes to the judge, so it never quotes the text.
    """
    text = html.unescape(text)
    free = {place for match in _LAYOUT.finditer(text) for place in range(*match.span())}
    marked = [(sign, place in free) for place, character in enumerate(text) for sign in _sign(character)]
    signs, layout = "".join(sign for sign, _ in marked), [may_be_left_out for _, may_be_left_out in marked]
    found: list[str] = []
    places = {0}  # possible positions in the text: in "1. 1" the first number may have been left out or not
    for number, sentence in enumerate(cut, 1):
        copied = _signs(html.unescape(sentence))
        if not copied:
            continue
        begins = {place for place in _skip_layout(places, layout) if signs.startswith(copied, place)}
        if not begins:
            raise ValueError(
                f"sentence {number} is not what follows in the text: it is not copied word by word, is there twice, "
                "or something before it was left out"
            )
        places = {begin + len(copied) for begin in begins}
        if not all(all(layout[begin : begin + len(copied)]) for begin in begins):
            found.append(sentence.strip())
    if not any(all(layout[place:]) for place in places):
        raise ValueError(
            f"the end of the text, its last {len(signs) - max(places)} letters and digits, is in no sentence"
        )
    return tuple(found)


def _skip_layout(places: Iterable[int], layout: Sequence[bool]) -> set[int]:
    """These positions, and those reached by skipping layout."""
    reached: set[int] = set()
    for place in places:
        at = place
        while at not in reached:
            reached.add(at)
            if at < len(layout) and layout[at]:
                at += 1
    return reached


def _signs(text: str) -> str:
    return "".join(map(_sign, text))


def _sign(character: str) -> str:
    """A character's letters and digits without accents, case and width, however it is composed."""
    if character.isascii():
        return character.lower() if character.isalnum() else ""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", character).casefold()))


_SPLIT, _LABEL = "hallucinations_split", "hallucinations_label"
_HARMLESS: Final[frozenset[SentenceKind]] = frozenset({"supported", "not_applicable"})
_SHOWN = 2


class SplitAnswer(Answer):
    """A text split into sentences."""

    sentences: list[str]


class _LabelEntry(Answer):
    index: int
    rationale: str
    label: SentenceKind


class LabelAnswer(Answer):
    """A label for each sentence, by its number from 1."""

    labels: list[_LabelEntry]


class Hallucinations(JudgedCriterion, TurnCriterion):
    """ADK's share of sentences that are supported or need no support."""

    name: ClassVar[str] = "hallucinations_v1"
    by_events: ClassVar[bool] = True
    prompt_names: ClassVar[tuple[str, ...]] = (_SPLIT, _LABEL)
    calls: ClassVar[int] = 2
    sampled: ClassVar[bool] = False

    evaluate_intermediate_nl_responses: bool = False

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        actual = sample.actual[turn]
        try:
            found = passages(actual, intermediate=self.evaluate_intermediate_nl_responses)
        except RecursionError:
            return self.unscored(turn, "what the tools returned is nested too deeply to be shown to a judge")
        if not found:
            tool = actual.answers_without_text
            reason = "a tool or media answered, and the agent wrote no text" if tool else "the agent said nothing"
            return self.unscored(turn, reason, ScoreStatus.NOT_APPLICABLE)
        judge = self.judge(sample)
        labelled = await asyncio.gather(*(_label_passage(judge, passage) for passage in found))
        if lost := next((labels for labels in labelled if isinstance(labels, LlmError)), None):
            return self.unscored(turn, lost.message)
        return _score_turn(turn, found, [labels for labels in labelled if not isinstance(labels, LlmError)])

    async def aggregate(self, sample: Sample, turns: Sequence[TurnScore]) -> CriterionScore:
        silent = [turn for turn in turns if not sample.actual[turn.turn].answers_without_text]
        if silent and all(turn.status is ScoreStatus.NOT_APPLICABLE for turn in turns):
            # a turn in which the agent answered nothing was not measured
            return self.no_score(ScoreStatus.ERROR, worst_reasons(silent), turns=tuple(turns))
        return await super().aggregate(sample, turns)

    def mean(self, scores: Sequence[float]) -> float:
        """Exact and rounded once, like ADK's."""
        return statistics.mean(scores)


async def _label_passage(judge: Judge, passage: Passage) -> tuple[SentenceLabel, ...] | LlmError:
    """Label the sentences of one text with two questions in sequence: split, then label."""
    cut: tuple[str, ...] | LlmError = ()
    if _signs(passage.text):  # without letters and digits (an emoji) the text is one sentence
        cut = await judge.ask(
            ask_about(
                _SPLIT,
                {"answer": passage.text},
                SplitAnswer,
                lambda answer: sentences_of(passage.text, answer.sentences),
            )
        )
    if isinstance(cut, LlmError):
        return replace(cut, message=f"the text could not be cut into its sentences: {cut.message}")
    sentences = cut or (passage.text.strip(),)  # nothing but layout
    listed = as_json([{"index": index, "sentence": sentence} for index, sentence in enumerate(sentences, 1)])
    texts = {**passage.context, "sentences": listed}
    labels = await judge.ask(
        ask_about(_LABEL, texts, LabelAnswer, lambda answer: _pair_labels(sentences, answer.labels))
    )
    if isinstance(labels, LlmError):
        return replace(labels, message=f"its sentences could not be labelled: {labels.message}")
    return labels


def _pair_labels(sentences: Sequence[str], labels: Sequence[_LabelEntry]) -> tuple[SentenceLabel, ...]:
    """Each sentence with its label. Raises ValueError unless every index occurs exactly once."""
    by_index = {label.index: label for label in labels}
    wanted = range(1, len(sentences) + 1)
    if len(by_index) < len(labels):
        raise ValueError("an index is labelled twice")
    if missing := [index for index in wanted if index not in by_index]:
        raise ValueError(f"index {missing[0]} has no label ({len(missing)} of {len(wanted)} have none)")
    if made_up := [index for index in by_index if index not in wanted]:
        raise ValueError(f"there is no sentence with index {made_up[0]}")
    return tuple(
        SentenceLabel(sentence=sentence, label=by_index[index].label, rationale=by_index[index].rationale.strip())
        for index, sentence in enumerate(sentences, 1)
    )


def _score_turn(turn: int, found: Sequence[Passage], labelled: Sequence[Sequence[SentenceLabel]]) -> TurnScore:
    scores = [float(statistics.mean(int(label.label in _HARMLESS) for label in labels)) for labels in labelled]
    sentences = tuple(label for labels in labelled for label in labels)
    bad = [label for label in sentences if label.label not in _HARMLESS]
    if bad:
        counts = Counter(label.label for label in bad)
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
        shown = "; ".join(f"{label.label}: {shorten(label.sentence)}" for label in bad[:_SHOWN])
        reason = f"{kinds} of {len(sentences)} sentences: {shown}"
    else:
        reason = f"all {len(sentences)} sentences hold" if len(sentences) > 1 else "its sentence holds"
    texts = [
        {"intermediate": passage.intermediate, "sentences": len(labels), "score": score}
        for passage, labels, score in zip(found, labelled, scores, strict=True)
    ]
    mean = float(statistics.mean(scores))
    return TurnScore(turn=turn, score=mean, reason=reason, details={"texts": texts}, sentences=sentences)
