"""Criteria about an answer's text: exact, similar, containing texts, matching a pattern or a JSON schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from agent_eval_action.criteria.base import RegexPattern, Relaxed, Sample, TurnCriterion, becomes, matches
from agent_eval_action.criteria.text import edit_distance, normalized
from agent_eval_action.llm.client import sendable_json
from agent_eval_action.results.findings import excerpt
from agent_eval_action.results.run_result import ScoreStatus, TurnScore

_LONGEST = 10_000
_SHOWN = 4
_LONGEST_END = 100


class AnswerCriterion(TurnCriterion):
    """Base of criteria that compare texts. ``ignore_case`` and ``ignore_whitespace`` make more texts equal."""

    relaxed_when: ClassVar[Mapping[str, Relaxed]] = {"ignore_case": becomes(True), "ignore_whitespace": becomes(True)}

    ignore_case: bool = False
    ignore_whitespace: bool = False

    def plain(self, text: str) -> str:
        """The text as it is compared."""
        return normalized(text, ignore_case=self.ignore_case, ignore_whitespace=self.ignore_whitespace)


class AnswerExactMatch(AnswerCriterion):
    """1 if the answer equals the reference."""

    name: ClassVar[str] = "answer_exact_match"
    needs_reference: ClassVar[bool] = True

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        want, got = sample.case.turns[turn].response_text, sample.actual[turn].response_text
        same = self.plain(want) == self.plain(got)
        reason = "as the reference" if same else f"“{excerpt(got, 100)}”, expected “{excerpt(want, 100)}”"
        return TurnScore(turn=turn, score=float(same), reason=reason)


class AnswerSimilarity(AnswerCriterion):
    """1 minus the edit distance of answer and reference, divided by the length of the longer, in characters."""

    name: ClassVar[str] = "answer_similarity"
    needs_reference: ClassVar[bool] = True

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        want, got = (self.plain(made.response_text) for made in (sample.case.turns[turn], sample.actual[turn]))
        longest = max(len(want), len(got))
        if longest > _LONGEST:
            return self.unscored(turn, f"a text of more than {_LONGEST} characters is not compared by character")
        score = 1 - edit_distance(want, got) / longest if longest else 1.0
        return TurnScore(turn=turn, score=score, reason=f"“{excerpt(got, 100)}”")


class AnswerContains(AnswerCriterion):
    """The share of ``texts`` that occur in the answer; without ``texts``, whether the turn's reference occurs."""

    name: ClassVar[str] = "answer_contains"

    texts: tuple[str, ...] = ()

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        answer = self.plain(sample.actual[turn].response_text)
        reference = sample.case.turns[turn].response_text if turn < len(sample.case.turns) else ""
        texts = self.texts or ((reference,) if reference else ())
        if not texts:
            return self.unscored(turn, "the case has no reference answer for this turn", ScoreStatus.NOT_APPLICABLE)
        missing = [text for text in texts if self.plain(text) not in answer]
        reason = "; ".join(f"“{excerpt(text, 80)}” is missing" for text in missing[:4]) or "all texts occur"
        return TurnScore(turn=turn, score=1 - len(missing) / len(texts), reason=reason)


class AnswerPattern(TurnCriterion):
    """1 if the pattern (RE2) occurs in the answer."""

    name: ClassVar[str] = "answer_pattern"

    pattern: RegexPattern = Field(min_length=1)

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        answer = sample.actual[turn].response_text
        found = matches(self.pattern, answer)
        reason = "the pattern occurs" if found else f"the pattern does not occur in “{excerpt(answer, 100)}”"
        return TurnScore(turn=turn, score=float(found), reason=reason)


def _validator(schema: dict[str, Any]) -> Any:
    """A validator with linear-time patterns that fetches nothing. Raises ValueError for an invalid schema."""
    import jsonschema_rs  # noqa: PLC0415 - only this criterion needs it

    def refuse(address: str) -> Any:
        raise ValueError(f"{address} is not fetched: write it into the schema")

    try:
        return jsonschema_rs.validator_for(schema, pattern_options=jsonschema_rs.RegexOptions(), retriever=refuse)
    except jsonschema_rs.ValidationError as error:
        raise ValueError(f"it is no JSON schema: {error.message}") from None


def _checked_schema(schema: dict[str, Any]) -> dict[str, Any]:
    _validator(schema)
    return schema


class AnswerJsonSchema(TurnCriterion):
    """1 if the answer is JSON that fits the schema. The schema is inline so that its changes are noticed."""

    name: ClassVar[str] = "answer_json_schema"

    json_schema: Annotated[dict[str, Any], AfterValidator(_checked_schema)]

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        answer = sample.actual[turn].response_text
        try:
            value = sendable_json(json.loads(answer, parse_constant=_refuse_constant))
        except (ValueError, RecursionError):
            return TurnScore(turn=turn, score=0.0, reason=f"the answer is no JSON: “{excerpt(answer, 100)}”")
        errors = islice(_validator(self.json_schema).iter_errors(value), _SHOWN)
        reason = "; ".join(f"{_place(error.instance_path)}{_both_ends(error.message)}" for error in errors)
        return TurnScore(turn=turn, score=float(not reason), reason=reason or "as the schema says")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _both_ends(message: str) -> str:
    """Keep both ends of a message: it starts with a value of any length and ends with what is wrong."""
    if len(message) > 2 * _LONGEST_END:
        message = f"{message[:_LONGEST_END]}…{message[-_LONGEST_END:]}"
    return excerpt(message, 3 * _LONGEST_END)


def _place(path: Sequence[str | int]) -> str:
    return f"{excerpt('.'.join(map(str, path)), 80)}: " if path else ""
