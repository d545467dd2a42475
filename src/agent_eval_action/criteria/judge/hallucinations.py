"""Whether the sentences a judge cut a text into are those of the text: none dropped, none made up, none twice.

Held against each other are letters and digits alone. A judge may leave out what only lays the text out: spaces,
markup, bullets, the numbers of a list, the address behind a link.
"""

from __future__ import annotations

import asyncio
import html
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, get_args

from agent_eval_action.criteria import prompts
from agent_eval_action.criteria.base import Sample, TurnCriterion
from agent_eval_action.criteria.deterministic.paired import worst_reasons
from agent_eval_action.criteria.judge.base import (
    NO_MODEL,
    Judge,
    JudgedCriterion,
    JudgeError,
    Question,
    as_json,
    message,
)
from agent_eval_action.criteria.judge.grounding_context import Passage, passages
from agent_eval_action.diagnostics.reader import shorten
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
    """The sentences, in order, without those that hold nothing but layout.

    Raises ValueError when they are not the text's. It says where and quotes nothing: the text is not to be trusted,
    and the sentence goes to the judge.
    """
    signs, layout = _signs_and_layout(html.unescape(text))
    found: list[str] = []
    places = {0}  # how far the text may be covered: "1. 1" begins with a number that may be left out, or not
    for number, sentence in enumerate(cut, 1):
        said = "".join(_signs(html.unescape(sentence)))
        if not said:
            continue
        begins = {place for place in _reached(places, layout) if signs.startswith(said, place)}
        if not begins:
            raise ValueError(
                f"sentence {number} is not what follows in the text: it is not copied word by word, is there twice, "
                "or something before it was left out"
            )
        places = {begin + len(said) for begin in begins}
        if not all(all(layout[begin : begin + len(said)]) for begin in begins):
            found.append(sentence.strip())
    if not any(all(layout[place:]) for place in places):
        raise ValueError(
            f"the end of the text, its last {len(signs) - max(places)} letters and digits, is in no sentence"
        )
    return tuple(found)


def _reached(places: Iterable[int], layout: Sequence[bool]) -> set[int]:
    """These places, and those after layout that was left out."""
    reached: set[int] = set()
    for place in places:
        at = place
        while at not in reached:
            reached.add(at)
            if at < len(layout) and layout[at]:
                at += 1
    return reached


def has_words(text: str) -> bool:
    """Whether there is anything in it to cut: an emoji alone is one sentence, however it is looked at."""
    return any(True for _ in _signs(text))


def _signs(text: str) -> Iterable[str]:
    for character in text:
        yield from _sign(character)


def _sign(character: str) -> str:
    """Its letters and digits, however it is composed: without accents, case and width."""
    if character.isascii():
        return character.lower() if character.isalnum() else ""
    plain = unicodedata.normalize("NFKD", character).casefold()
    return "".join(one for one in plain if one.isalnum())


def _signs_and_layout(text: str) -> tuple[str, list[bool]]:
    """The signs of a text, and of each whether it may be left out."""
    free = {place for match in _LAYOUT.finditer(text) for place in range(*match.span())}
    signs: list[str] = []
    layout: list[bool] = []
    for place, character in enumerate(text):
        here = _sign(character)
        signs.append(here)
        layout += [place in free] * len(here)
    return "".join(signs), layout


_SPLIT, _LABEL = "hallucinations_split", "hallucinations_label"
_HARMLESS: Final[frozenset[SentenceKind]] = frozenset({"supported", "not_applicable"})
_SHOWN = 2

_SPLIT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"sentences": {"type": "array", "items": {"type": "string"}}},
    "required": ["sentences"],
    "additionalProperties": False,
}
_LABEL_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "labels": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "index": {"type": "integer"},
                    "rationale": {"type": "string"},
                    "label": {"type": "string", "enum": list(get_args(SentenceKind))},
                },
                "required": ["index", "rationale", "label"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["labels"],
    "additionalProperties": False,
}

Labels = tuple[SentenceLabel, ...]


class Hallucinations(JudgedCriterion, TurnCriterion):
    """ADK's share of sentences that are supported, or that nothing needs to support."""

    name: ClassVar[str] = "hallucinations_v1"
    prompt_names: ClassVar[tuple[str, ...]] = (_SPLIT, _LABEL)
    calls: ClassVar[int] = 2
    sampled: ClassVar[bool] = False

    evaluate_intermediate_nl_responses: bool = False

    def refusal(self, sample: Sample) -> CriterionScore | None:
        return None if self.judge(sample) else self.no_score(ScoreStatus.ERROR, NO_MODEL)

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        judge = self.judge(sample)
        if judge is None:
            return TurnScore(turn=turn, status=ScoreStatus.ERROR, reason=NO_MODEL)
        try:
            found = passages(sample.actual[turn], intermediate=self.evaluate_intermediate_nl_responses)
        except RecursionError:
            reason = "what the tools returned is nested too deeply to be shown to a judge"
            return TurnScore(turn=turn, status=ScoreStatus.ERROR, reason=reason)
        if not found:
            tool = sample.actual[turn].answers_without_text
            reason = "a tool or media answered, and the agent wrote no text" if tool else "the agent said nothing"
            return TurnScore(turn=turn, status=ScoreStatus.NOT_APPLICABLE, reason=reason)
        labelled = await asyncio.gather(*(_labelled(judge, passage) for passage in found))
        return _over_texts(turn, found, labelled)

    async def over_turns(self, sample: Sample, turns: Sequence[TurnScore]) -> CriterionScore:
        lost = [turn for turn in turns if turn.status is ScoreStatus.ERROR]
        scored = [turn for turn in turns if turn.score is not None]
        if not lost and not scored:  # an agent that answered nothing at all in a turn was not measured there
            lost = [turn for turn in turns if not sample.actual[turn.turn].answers_without_text]
        if lost or not scored:
            status = ScoreStatus.ERROR if lost else ScoreStatus.NOT_APPLICABLE
            return self.no_score(status, worst_reasons(lost or turns), turns=tuple(turns))
        low = [turn for turn in scored if (turn.score or 0.0) < 1]
        mean = statistics.mean(turn.score or 0.0 for turn in scored)
        return self.result(mean, reason=worst_reasons(low or scored), turns=tuple(turns))


async def _labelled(judge: Judge, passage: Passage) -> Labels | JudgeError:
    """The sentences of one text with their labels; the second question needs the answer to the first."""
    cut: tuple[str, ...] | JudgeError = ()
    if has_words(passage.text):
        cut = await judge.ask(_split(passage.text))
    if isinstance(cut, JudgeError):
        return JudgeError(f"the text could not be cut into its sentences: {cut.reason}", cut.kind)
    sentences = cut or (passage.text.strip(),)  # nothing but layout: one sentence, however it is looked at
    labels = await judge.ask(_label(sentences, passage.context))
    if isinstance(labels, JudgeError):
        return JudgeError(f"its sentences could not be labelled: {labels.reason}", labels.kind)
    return labels


def _split(text: str) -> Question[tuple[str, ...]]:
    prompt = prompts.load(_SPLIT)

    def read(answer: Any) -> tuple[str, ...]:
        return sentences_of(text, answer["sentences"])

    return Question(prompt.text, message({"answer": text}), _SPLIT_SCHEMA, prompt.version, read)


def _label(sentences: Sequence[str], context: Mapping[str, str]) -> Question[Labels]:
    prompt = prompts.load(_LABEL)
    listed = [{"index": index, "sentence": sentence} for index, sentence in enumerate(sentences, 1)]

    def read(answer: Any) -> Labels:
        return _in_order(sentences, answer["labels"])

    texts = {**context, "sentences": as_json(listed)}
    return Question(prompt.text, message(texts), _LABEL_SCHEMA, prompt.version, read)


def _in_order(sentences: Sequence[str], labels: Sequence[Mapping[str, Any]]) -> Labels:
    """Each sentence with its label. Raises ValueError unless every index is there exactly once."""
    by_index = {int(label["index"]): label for label in labels}
    wanted = range(1, len(sentences) + 1)
    if len(by_index) < len(labels):
        raise ValueError("an index is labelled twice")
    if missing := [index for index in wanted if index not in by_index]:
        raise ValueError(f"index {missing[0]} has no label ({len(missing)} of {len(wanted)} have none)")
    if made_up := [index for index in by_index if index not in wanted]:
        raise ValueError(f"there is no sentence with index {made_up[0]}")
    return tuple(
        SentenceLabel(sentence=sentence, label=by_index[index]["label"], rationale=by_index[index]["rationale"].strip())
        for index, sentence in enumerate(sentences, 1)
    )


@dataclass(frozen=True, slots=True)
class _Text:
    """One text as judged."""

    passage: Passage
    labels: Labels

    @property
    def score(self) -> float:
        return float(statistics.mean(int(label.label in _HARMLESS) for label in self.labels))


def _over_texts(turn: int, found: Sequence[Passage], labelled: Sequence[Labels | JudgeError]) -> TurnScore:
    """The mean over the texts of a turn; one text without labels voids it."""
    if lost := next((one for one in labelled if isinstance(one, JudgeError)), None):
        return TurnScore(turn=turn, status=ScoreStatus.ERROR, reason=lost.reason)
    texts = [
        _Text(passage, labels)
        for passage, labels in zip(found, labelled, strict=True)
        if not isinstance(labels, JudgeError)
    ]
    sentences = tuple(label for text in texts for label in text.labels)
    details = {
        "texts": [
            {"intermediate": text.passage.intermediate, "sentences": len(text.labels), "score": text.score}
            for text in texts
        ]
    }
    return TurnScore(
        turn=turn,
        score=float(statistics.mean(text.score for text in texts)),
        reason=_reason(sentences),
        details=details,
        sentences=sentences,
    )


def _reason(sentences: Labels) -> str:
    bad = [label for label in sentences if label.label not in _HARMLESS]
    if not bad:
        return f"all {len(sentences)} sentences hold" if len(sentences) > 1 else "its sentence holds"
    counts = Counter(label.label for label in bad)
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    shown = "; ".join(f"{label.label}: {shorten(label.sentence)}" for label in bad[:_SHOWN])
    return f"{kinds} of {len(sentences)} sentences: {shown}"
