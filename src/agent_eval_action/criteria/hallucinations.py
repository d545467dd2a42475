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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from agent_eval_action.criteria.base import Sample, TurnCriterion, worst_reasons
from agent_eval_action.criteria.judge import Answer, Judge, JudgedCriterion, as_json, ask_about
from agent_eval_action.criteria.verdicts import all_instructions, sources, tools
from agent_eval_action.diagnostics.reader import shorten
from agent_eval_action.llm.client import LlmError
from agent_eval_action.results.evalset import Content, IntermediateData, Invocation, InvocationEvent, Part
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
        reached: set[int] = set()  # these positions, and those behind layout that may have been left out
        for place in places:
            at = place
            while at not in reached:
                reached.add(at)
                if at < len(layout) and layout[at]:
                    at += 1
        begins = {place for place in reached if signs.startswith(copied, place)}
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


class _SplitAnswer(Answer):
    sentences: list[str]


class _LabelEntry(Answer):
    index: int  # of the sentence, from 1
    rationale: str
    label: SentenceKind


class _LabelAnswer(Answer):
    labels: list[_LabelEntry]


_CODE: Final = ("executable_code", "code_execution_result")  # the model's built-in tool, which ADK leaves out


@dataclass(frozen=True, slots=True)
class Passage:
    """A text of the agent and its context: texts by label of the prompt.

    Context texts with several items are JSON, so that nothing said can pass for an event.
    ``intermediate``: not the turn's final response.
    """

    text: str
    context: Mapping[str, str]
    intermediate: bool = False


def passages(turn: Invocation, *, intermediate: bool) -> tuple[Passage, ...]:
    """The non-blank texts of a turn to judge; with ``intermediate``, also those before the final response.

    As in ADK, the context of an intermediate text is the earlier events and the grounding of its own event; that of
    the final response is the whole turn. Hand-written turns do not order texts and calls: the calls are assumed to
    come first, so that nothing the agent learnt from tools looks invented.
    """
    data, events = turn.intermediate_data, turn.events
    if isinstance(data, IntermediateData):
        calls = tuple(Part(function_call=call) for call in data.tool_uses)
        responses = tuple(Part(function_response=response) for response in data.tool_responses)
        written = [("", calls), ("", responses), *data.intermediate_responses]
        events = tuple(InvocationEvent(author=author, content=Content(parts=parts)) for author, parts in written)
    found: list[Passage] = []
    for number, event in enumerate(events if intermediate else ()):
        if texts := [part.text or "" for part in event.parts if _is_spoken(part)]:
            context = _context(turn, (*events[:number], event.model_copy(update={"content": None})))
            found += [Passage(text, context, intermediate=True) for text in texts]
    if turn.response_text.strip():
        found.append(Passage(turn.response_text, _context(turn, events)))
    return tuple(found)


def _is_spoken(part: Part) -> bool:
    return bool(part.text and part.text.strip() and not part.thought)


def _context(turn: Invocation, events: Sequence[InvocationEvent]) -> Mapping[str, str]:
    instructions = [f"{name}:\n{text}" for name, text in all_instructions([turn]).items()]
    return {
        **{f"context_instructions_{number}": text for number, text in enumerate(instructions, 1)},
        "context_user_message": turn.user_content.text,
        "context_tool_declarations": as_json(tools(turn)),
        "context_grounding": as_json(sources(events, "author")),
        "context_events": as_json([known for event in events for known in _steps(event)]),
    }


def _steps(event: InvocationEvent) -> Iterator[dict[str, Any]]:
    author = {"agent": event.author} if event.author else {}
    for part in event.parts:
        if _is_spoken(part):
            yield {**author, "said": part.text}
        for key, who, used in (("called", author, part.function_call), ("returned", {}, part.function_response)):
            if used:
                fields = {name: vars(used).get(name) for name in ("id", "name", "args", "response")}
                yield {**who, key: {name: value for name, value in fields.items() if value is not None}}
        for key in _CODE:
            if value := (part.model_extra or {}).get(key):
                yield {key: value}


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
                _SplitAnswer,
                lambda answer: sentences_of(passage.text, answer.sentences),
            )
        )
    if isinstance(cut, LlmError):
        return replace(cut, message=f"the text could not be cut into its sentences: {cut.message}")
    sentences = cut or (passage.text.strip(),)  # nothing but layout
    listed = as_json([{"index": index, "sentence": sentence} for index, sentence in enumerate(sentences, 1)])
    texts = {**passage.context, "sentences": listed}
    labels = await judge.ask(
        ask_about(_LABEL, texts, _LabelAnswer, lambda answer: _pair_labels(sentences, answer.labels))
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
