"""Text under judgement, between tags that the text itself cannot hold: made of its own digest.

Stable (the same texts give the same request, so that answers can be cached) and out of reach: to close its
fence a text would have to contain a digest of itself. No text is cut: a verdict on a text that was not read
whole is no verdict. What is beyond the model's limit, the provider refuses, and that is an error.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Final, Generic, TypeVar

from pydantic import AfterValidator, Field
from pydantic.alias_generators import to_snake

from agent_eval_action.criteria import prompts
from agent_eval_action.criteria.base import Criterion, Relaxed, Sample, lower
from agent_eval_action.diagnostics.reader import shorten
from agent_eval_action.llm.client import Llm, LlmError, LlmErrorKind, LlmRequest, Message, sendable
from agent_eval_action.results.base import AdkModel
from agent_eval_action.results.run_result import Votes

printable = sendable
"""What is fenced is what is sent: its digest has to be of the same characters."""

_DIGITS = 24
_LABEL = re.compile(r"[a-z][a-z0-9_]*")


def fenced(label: str, text: str) -> str:
    """One text between its tags. ``label`` (snake_case) says what it is, and is what the prompt calls it."""
    return fences({label: text})[label]


def fences(texts: Mapping[str, str]) -> dict[str, str]:
    """The texts of one prompt, each between tags made of the digest of all of them, by label.

    Of all, so that no text can hold a tag of another either, not even one whose author knows every other text.
    """
    said = {label: printable(text) for label, text in texts.items()}
    digest = hashlib.sha256(json.dumps(said, ensure_ascii=False).encode()).hexdigest()[:_DIGITS]
    return {label: _between(f"{_checked(label)}-{digest}", text) for label, text in said.items()}


def message(texts: Mapping[str, str]) -> str:
    """A prompt's whole message: its fenced texts one after the other, in their order."""
    return "\n\n".join(fences(texts).values())


def as_json(value: Any) -> str:
    """A value as JSON for a judge to read. Raises RecursionError when it is nested beyond what Python can walk."""
    return json.dumps(value, ensure_ascii=False, indent=1, default=str)


def _between(tag: str, text: str) -> str:
    return f"<{tag}>\n{text}\n</{tag}>"


def _checked(label: str) -> str:
    if not _LABEL.fullmatch(label):
        raise ValueError(f"no label of a fence: {label!r}")
    return label


_CODE_BLOCK = re.compile(r"\s*```(?:json)?[ \t]*\r?\n(.*?)\r?\n?[ \t]*```\s*", re.DOTALL | re.IGNORECASE)
_KINDS: Final[dict[str, Any]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}
_KNOWN = frozenset({"type", "properties", "required", "additionalProperties", "items", "enum", "description"})


def parsed(text: str, schema: Mapping[str, Any]) -> Any:
    """The value. Raises ValueError with one sentence for the model when the text is not JSON of this schema.

    A code block around the JSON is allowed, for models without structured output; nothing else beside it is:
    an answer found by searching could be one that the text under judgement planted.
    """
    block = _CODE_BLOCK.fullmatch(text)
    inner = block[1] if block else text
    try:
        value = json.loads(inner, parse_constant=_refused, object_pairs_hook=_without_repetition)
        if "\\u" in inner:  # an escape can smuggle in a lone surrogate, which no report could write
            value = json.loads(printable(json.dumps(value, ensure_ascii=False)))
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("it is not the JSON that was asked for: it is nested too deeply") from None
    if wrong := next(_violations(value, schema, "the answer"), ""):
        raise ValueError(wrong)
    return value


def _refused(constant: str) -> Any:
    raise ValueError(f"it is not JSON: {constant} is no JSON number")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two verdicts under one key: which one is meant is anybody's guess."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it is not JSON that has one meaning: a key is there twice")
    return found


def _violations(value: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    """What of a value is not as the schema says; the part of JSON Schema that Gemini and OpenAI both take."""
    if unknown := schema.keys() - _KNOWN:
        raise TypeError(f"a judge's schema cannot say {sorted(unknown)}")
    kind = schema["type"]
    if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "boolean"):
        yield f"{place} must be of type {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place} is {shorten(value)} and must be one of {', '.join(map(str, schema['enum']))}"
    if kind == "object":
        yield from _of_object(value, schema, place)
    for index, item in enumerate(value if kind == "array" else ()):
        yield from _violations(item, schema["items"], f"item {index + 1} of {place}")


def _of_object(value: dict[str, Any], schema: Mapping[str, Any], place: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    for key in schema.get("required", ()):
        if key not in value:
            yield f"`{key}` of {place} is missing"
    for key, item in value.items():
        if key in properties:
            yield from _violations(item, properties[key], f"`{key}` of {place}")
        elif schema.get("additionalProperties") is False:
            yield f"{place} must not have {shorten(key)}"


T = TypeVar("T")

_SHOWN_AGAIN = 20_000


class PartialAnswer(ValueError):  # noqa: N818 - not an error to those who ask: half an answer
    """What ``Question.read`` raises when some keys of an answer are missing and the rest can be used.

    The whole is asked again; if that is not whole either, both together are what there is.
    """

    def __init__(self, missing: str, value: Mapping[str, Any]) -> None:
        super().__init__(missing)
        self.value = value


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """What a judge is asked.

    ``system`` says what to do, ``prompt`` holds the texts, fenced. ``schema`` is a JSON Schema that Gemini and
    OpenAI both take: every property required, no additional ones, and only what ``answer.parsed`` knows.
    ``version`` is the prompt's. ``read`` makes the result of the parsed JSON; it raises ValueError, in words
    for the model, when the answer cannot be used although it fits the schema.
    """

    system: str
    prompt: str
    schema: Mapping[str, Any]
    version: str
    read: Callable[[Any], T]


@dataclass(frozen=True, slots=True)
class JudgeError:
    """Why a sample gave nothing. ``kind`` is None when the model answered and the answer was unusable."""

    reason: str
    kind: LlmErrorKind | None = None

    @property
    def final(self) -> bool:
        """Whether asking again, or for another sample, is pointless: the run may not, or the provider will not."""
        return self.kind in (LlmErrorKind.BUDGET, LlmErrorKind.REFUSED)


@dataclass(frozen=True, slots=True)
class Judge:
    """A model that judges, for one criterion (``purpose``) and one repeat of a case."""

    llm: Llm
    options: JudgeModelOptions
    purpose: str
    repeat: int = 0

    async def ask(self, question: Question[T], sample: int = 0) -> T | JudgeError:
        """One sample. An unusable answer is asked for again once, with what was wrong; then it is left out."""
        request = self._request(question, sample)
        first = await self.llm.generate(request)
        if isinstance(first, LlmError):
            return JudgeError(first.message, first.kind)
        try:
            return _read(question, first.text)
        except ValueError as error:
            wrong = error
        second = await self.llm.generate(_again(request, first.text, str(wrong)))
        if isinstance(second, LlmError):
            return _rest(wrong) or JudgeError(second.message, second.kind)
        try:
            return _read(question, second.text)
        except ValueError as error:
            return _rest(wrong, error) or JudgeError(f"the judge's answer could not be used: {error}")

    def _request(self, question: Question[Any], sample: int) -> LlmRequest:
        return LlmRequest(
            model=self.options.judge_model,
            messages=(Message("user", printable(question.prompt)),),
            system=printable(question.system),
            schema=question.schema,
            options=self.options.judge_model_config or {},
            purpose=self.purpose,
            prompt_version=question.version,
            sample=sample,
            repeat=self.repeat,
        )


def _read(question: Question[T], text: str) -> T:
    return question.read(parsed(text, question.schema))


def _rest(*errors: ValueError) -> Any:
    """What can be used of answers that were not whole; of two verdicts on one key the later."""
    found: dict[str, Any] = {}
    for error in errors:
        found |= error.value if isinstance(error, PartialAnswer) else {}
    return found


def _again(request: LlmRequest, answered: str, wrong: str) -> LlmRequest:
    """The same conversation, and what was wrong with its end."""
    note = (
        f"Your last message cannot be used: {printable(wrong)}.\n"
        "Decide on the same texts again and answer with JSON of the required schema alone."
    )
    said = Message("model", printable(answered[:_SHOWN_AGAIN]) or "(nothing)")
    return replace(request, messages=(*request.messages, said, Message("user", note)))


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """One yes or no of one sample, and why."""

    yes: bool
    rationale: str = ""


@dataclass(frozen=True, slots=True)
class VoteResult:
    """How the samples fell. ``verdict`` is None when nothing was decided, and ``reason`` then says why.

    ``rationale`` is that of the first sample of the majority. A tie is negative.
    """

    votes: Votes
    verdict: bool | None
    rationale: str = ""
    reason: str = ""
    kind: LlmErrorKind | None = None


VERDICT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "rationale": {"type": "string", "description": "Why, in one or two sentences."},
        "verdict": {"type": "string", "enum": ["yes", "no"]},
    },
    "required": ["rationale", "verdict"],
    "additionalProperties": False,
}
"""The answer to one yes/no question; the rationale first, so that the verdict follows from it."""


def read_verdict(answer: Mapping[str, Any]) -> JudgeVerdict:
    """``Question.read`` of a question with ``VERDICT_SCHEMA``."""
    return JudgeVerdict(answer["verdict"] == "yes", answer["rationale"].strip())


async def vote(judge: Judge, question: Question[JudgeVerdict]) -> VoteResult:
    """The majority of ``num_samples`` verdicts."""
    counts = _Counts(judge.options.num_samples)
    await _poll(judge, question, [counts], counts.take)
    return counts.ballot()


async def vote_each(
    judge: Judge, question: Question[Mapping[str, JudgeVerdict]], keys: Iterable[str]
) -> dict[str, VoteResult]:
    """A majority per key; every sample answers all keys. A key that a sample does not answer is left out there."""
    counts = {key: _Counts(judge.options.num_samples) for key in keys}

    def take(sample: int, answer: Mapping[str, JudgeVerdict] | JudgeError) -> None:
        for key, of_key in counts.items():
            of_key.take(sample, answer if isinstance(answer, JudgeError) else answer.get(key, _NOT_ANSWERED))

    await _poll(judge, question, list(counts.values()), take)
    return {key: of_key.ballot() for key, of_key in counts.items()}


_NOT_ANSWERED = JudgeError("the judge left it out of its answer")


@dataclass
class _Counts:
    """The votes on one thing so far, by sample."""

    samples: int
    said: dict[int, JudgeVerdict | JudgeError] = field(default_factory=dict)
    yes: int = 0
    no: int = 0

    def take(self, sample: int, answer: JudgeVerdict | JudgeError) -> None:
        self.said[sample] = answer
        if isinstance(answer, JudgeVerdict):
            self.yes, self.no = self.yes + answer.yes, self.no + (not answer.yes)

    @property
    def needed(self) -> int:
        """How many further answers can decide, if they agree; 0 when nothing can change the verdict any more."""
        left = self.samples - len(self.said)
        # yes + k > no + left - k: yes, whatever comes after. no + k >= yes + left - k: no, for a tie is no.
        for_yes = (self.no + left - self.yes) // 2 + 1
        for_no = (self.yes + left - self.no + 1) // 2
        return min(left, max(0, min(for_yes, for_no)))

    def ballot(self) -> VoteResult:
        said = [self.said[sample] for sample in sorted(self.said)]
        votes = Votes(yes=self.yes, no=self.no, left_out=len(said) - self.yes - self.no)
        verdict = votes.verdict if self.needed == 0 else None
        if verdict is None:
            lost = [answer for answer in said if isinstance(answer, JudgeError)]
            why = next((one for one in lost if one.final), lost[0])
            return VoteResult(votes, None, reason=why.reason, kind=why.kind)
        first = next(one for one in said if isinstance(one, JudgeVerdict) and one.yes is verdict)
        return VoteResult(votes, verdict, first.rationale)


async def _poll(
    judge: Judge, question: Question[T], counts: Sequence[_Counts], take: Callable[[int, T | JudgeError], None]
) -> None:
    """Asks samples until all is decided, or until an answer says that asking is over.

    Never more are open than could decide if they agreed: none is asked in vain, and the samples that are asked
    are the first ones, whatever order they come back in.
    """
    limit = judge.options.parallelism_limit or judge.options.num_samples
    open_: dict[asyncio.Task[T | JudgeError], int] = {}
    asked, over = 0, False
    try:
        while True:
            needed = max(one.needed for one in counts)
            while not over and len(open_) < min(limit, needed):
                asking = judge.ask(question, asked)
                open_[asyncio.create_task(asking)] = asked
                asked += 1
            if not open_:
                return
            done, _ = await asyncio.wait(open_, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                answer = task.result()
                take(open_.pop(task), answer)
                over = over or (isinstance(answer, JudgeError) and answer.final)
    finally:
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)


_OURS = {
    "system_instruction": "the criterion's own prompt",
    "response_schema": "the schema of the criterion's answer",
    "response_json_schema": "the schema of the criterion's answer",
    "response_mime_type": "JSON",
    "candidate_count": "one answer per sample (ask for more with `num_samples`)",
    "tools": "nothing: a judge has no tools",
    "tool_config": "nothing: a judge has no tools",
    "automatic_function_calling": "off: a judge has no tools",
    # Its base_url and headers would send the judge's key wherever a pull request's criteria file says.
    "http_options": "the run's own (`llm`)",
}


def _in_snake_case(config: dict[str, Any] | None) -> dict[str, Any] | None:
    """The names of GenerateContentConfig in one spelling: the other is no other judge."""
    snake: dict[str, Any] = {}
    for key, value in (config or {}).items():
        name = to_snake(key)
        if name in snake:
            raise ValueError(f"`{key}` is given in two spellings")
        if name in _OURS:
            raise ValueError(f"`{key}` cannot be set: it is {_OURS[name]}")
        snake[name] = value
    return snake or None


class JudgeModelOptions(AdkModel):
    """Which model judges, and how often it is asked.

    ``judge_model_config`` goes to the model as it is, in snake_case. ``parallelism_limit`` bounds the samples of
    one question that are asked at once; ADK's is per metric and 1, which would make every case wait for itself,
    so that here None (the rate limits alone) is the default. It changes no score and is in no digest.
    """

    judge_model: str = Field(default="gemini-2.5-flash", min_length=1)
    judge_model_config: Annotated[dict[str, Any] | None, AfterValidator(_in_snake_case)] = None
    num_samples: int = Field(default=5, ge=1)
    parallelism_limit: int | None = Field(default=None, ge=1, exclude=True)


_EXCERPT = 200


def excerpt(text: str) -> str:
    """The beginning of a text, on one line."""
    flat = " ".join(text[: 2 * _EXCERPT].split())
    return flat if len(flat) <= _EXCERPT and len(text) <= 2 * _EXCERPT else flat[: _EXCERPT - 1] + "…"


def describe_undecided(ballot: VoteResult) -> str:
    """Why there is no verdict."""
    votes = ballot.votes
    cast = votes.yes + votes.no
    so_far = f" after {votes.yes} yes and {votes.no} no" if cast else ""
    return f"no verdict{so_far}: {excerpt(ballot.reason)}"


NO_MODEL = "this run has no model to judge with"


class JudgedCriterion(Criterion):
    """A criterion that asks a judge. ``prompt_names`` are its files in ``criteria/prompts``.

    ``calls`` is what one turn (or case) takes, ``sampled`` whether each of them is a vote of ``num_samples``.
    """

    prompt_names: ClassVar[tuple[str, ...]]
    calls: ClassVar[int] = 1
    sampled: ClassVar[bool] = True
    relaxed_when: ClassVar[Mapping[str, Relaxed]] = {"judge_model_options.num_samples": lower}

    judge_model_options: JudgeModelOptions = JudgeModelOptions()

    def version(self) -> str:
        return "+".join([self.scoring_version, *(prompts.load(name).version for name in self.prompt_names)])

    def models(self) -> tuple[str, ...]:
        return (self.judge_model_options.judge_model,)

    def judge(self, sample: Sample) -> Judge | None:
        """Who judges this attempt; None when the run has no model (``NO_MODEL`` says so)."""
        llm = sample.instruments.llm
        return Judge(llm, self.judge_model_options, self.name, sample.repeat) if llm else None
