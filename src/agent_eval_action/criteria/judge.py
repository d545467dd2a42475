"""Asking a judge: texts fenced as data, an answer of a given shape or none, the majority of several samples."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agent_eval_action.criteria.base import Criterion, Relaxed, Sample, lower
from agent_eval_action.diagnostics.reader import shorten
from agent_eval_action.diagnostics.suggestions import snake_case
from agent_eval_action.llm.client import (
    RESERVED_OPTIONS,
    Llm,
    LlmError,
    LlmErrorKind,
    LlmRequest,
    Message,
    read_prompt,
    sendable,
    sendable_json,
)
from agent_eval_action.results.base import AdkModel
from agent_eval_action.results.findings import excerpt
from agent_eval_action.results.run_result import CastVote, CriterionScore, ScoreStatus, Votes

T = TypeVar("T")

_DIGITS = 24
_LABEL = re.compile(r"[a-z][a-z0-9_]*")
_CODE_BLOCK = re.compile(r"\s*```(?:json)?[ \t]*\r?\n(.*?)\r?\n?[ \t]*```\s*", re.DOTALL | re.IGNORECASE)
_SHOWN_AGAIN = 20_000
_VOTE_WORDS = 300
_FINAL = frozenset({LlmErrorKind.BUDGET, LlmErrorKind.REFUSED})  # asking again, or for another sample, is pointless


def fences(texts: Mapping[str, str]) -> dict[str, str]:
    """The texts of one prompt by label (snake_case), each between tags made of the digest of all of them.

    The digest is stable, so that answers can be cached, and out of reach: to hold a tag of its own or of another text,
    a text would have to contain a digest of itself. No text is cut: a verdict on a part is no verdict, and what is
    beyond the model's limit the provider refuses, which is an error.
    """
    sent = {label: sendable(text) for label, text in texts.items()}
    if wrong := next((label for label in sent if not _LABEL.fullmatch(label)), None):
        raise ValueError(f"no label of a fence: {wrong!r}")
    digest = hashlib.sha256(json.dumps(sent, ensure_ascii=False).encode()).hexdigest()[:_DIGITS]
    return {label: f"<{label}-{digest}>\n{text}\n</{label}-{digest}>" for label, text in sent.items()}


def message(texts: Mapping[str, str]) -> str:
    """A prompt's whole message: its fenced texts one after the other, in their order."""
    return "\n\n".join(fences(texts).values())


def as_json(value: Any) -> str:
    """A value as JSON for a judge to read. Raises RecursionError when it is nested beyond what Python can walk."""
    return json.dumps(value, ensure_ascii=False, indent=1, default=str)


class Answer(BaseModel):
    """The shape of a judge's answer: every field is required, and nothing else may be there."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class VerdictAnswer(Answer):
    """The answer to one yes/no question; the rationale first, so that the verdict follows from it."""

    rationale: str = Field(description="Why, in one or two sentences.")
    verdict: Literal["yes", "no"]

    @property
    def yes(self) -> bool:
        """Whether it is a yes."""
        return self.verdict == "yes"


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


@cache
def schema_of(shape: Any) -> dict[str, Any]:
    """The JSON Schema of a shape, in the part of the language that Gemini and OpenAI both take."""
    made = _adapter(shape).json_schema()
    plain: dict[str, Any] = _plain(made, made.pop("$defs", {}))
    return plain


def _plain(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """References are resolved, titles and docstrings of ours left out, and a constant is a choice of one."""
    if isinstance(schema, list):
        return [_plain(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _plain(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    own = {"title"} | ({"description"} if "properties" in schema else set())
    kept = {key: value for key, value in schema.items() if key not in own}
    if "const" in kept:
        kept["enum"] = [kept.pop("const")]
    if "properties" in kept:
        kept["properties"] = {name: _plain(inner, definitions) for name, inner in kept["properties"].items()}
    return {key: value if key == "properties" else _plain(value, definitions) for key, value in kept.items()}


def parse_answer(text: str, shape: Any) -> Any:
    """The answer. Raises ValueError with one sentence for the model when the text is not JSON of this shape.

    A code block around the JSON is allowed, for models without structured output; nothing else beside it is: an
    answer found by searching could be one that the text under judgement planted.
    """

    def refuse_constant(constant: str) -> Any:
        raise ValueError(f"it is not JSON: {constant} is no JSON number")

    def without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):  # two verdicts under one key: which one is meant is anybody's guess
            raise ValueError("it is not JSON that has one meaning: a key is there twice")
        return found

    block = _CODE_BLOCK.fullmatch(text)
    inner = block[1] if block else text
    try:
        value = json.loads(inner, parse_constant=refuse_constant, object_pairs_hook=without_repetition)
        if "\\u" in inner:  # an escape can smuggle in a lone surrogate, which no report could write
            value = sendable_json(value)
        return _adapter(shape).validate_python(value, strict=True)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("it is not the JSON that was asked for: it is nested too deeply") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step + 1 if isinstance(step, int) else step) for step in first["loc"])
        given = "" if first["type"] in ("missing", "extra_forbidden") else f", and is {shorten(first['input'])}"
        raise ValueError(f"{f'`{place}`' if place else 'the answer'}: {first['msg']}{given}") from None


class PartialAnswer(ValueError):  # noqa: N818 - not an error to those who ask: half an answer
    """Some keys of an answer are missing; the whole is asked again, and both answers together are what there is."""

    def __init__(self, missing: str, value: Mapping[str, Any]) -> None:
        super().__init__(missing)
        self.value = value


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """What a judge is asked.

    ``system`` says what to do, ``prompt`` holds the texts, fenced. ``shape`` is the answer's type, most often an
    ``Answer``. ``version`` is the prompt's. ``read`` makes the result of an answer; it raises ValueError, in words for
    the model, when the answer cannot be used although it has the shape.
    """

    system: str
    prompt: str
    shape: Any
    version: str
    read: Callable[[Any], T]


@cache
def load_prompt(name: str) -> tuple[str, str]:
    """Return the version and the text of a file of ``criteria/prompts``, followed by the rule about fences.

    The version changes whenever the words do, those of the rule included.
    """
    (version, text), (shared_version, shared) = (
        read_prompt("agent_eval_action.criteria", f"prompts/{each}") for each in (name, "fences")
    )
    return f"{name}-{version}.{shared_version}", f"{text}\n\n{shared}"


def ask_about(prompt_name: str, texts: Mapping[str, str], shape: Any, read: Callable[[Any], T]) -> Question[T]:
    """A question on these texts, by a prompt file of ``criteria/prompts``."""
    version, system = load_prompt(prompt_name)
    return Question(system, message(texts), shape, version, read)


_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)(?:\.[\w.]*)?\}")


def placeholders(template: str) -> set[str]:
    """The names that a user's prompt wants filled in, as in ``{answer}``."""
    return {match[1] for match in _PLACEHOLDER.finditer(template)}


def ask_by_template(
    prompt_name: str, template: str, texts: Mapping[str, str], shape: Any, read: Callable[[Any], T]
) -> Question[T]:
    """A question by the user's own prompt, filled with fenced texts; ``prompt_name`` says in which form to answer."""
    version, rules = load_prompt(prompt_name)
    fenced = fences(texts)
    prompt = _PLACEHOLDER.sub(lambda match: fenced.get(match[1], match[0]), template)
    return Question(rules, prompt, shape, version, read)


def _in_snake_case(config: dict[str, Any] | None) -> dict[str, Any] | None:
    """The names of GenerateContentConfig in one spelling: the other is no other judge."""
    snake: dict[str, Any] = {}
    for key, value in (config or {}).items():
        name = snake_case(key)
        if name in snake:
            raise ValueError(f"`{key}` is given in two spellings")
        if name in RESERVED_OPTIONS:
            raise ValueError(f"`{key}` cannot be set: {RESERVED_OPTIONS[name]}")
        snake[name] = value
    return snake or None


class JudgeModelOptions(AdkModel):
    """The judge model and the number of votes.

    ``judge_model_config`` goes to the model as it is, in snake_case. ``parallelism_limit`` bounds the samples of
    one question that are asked at once; ADK's is per metric and 1, which would make every case wait for itself,
    so that here None (the rate limits alone) is the default. It changes no score and is in no digest.
    """

    judge_model: str = Field(default="gemini-2.5-flash", min_length=1)
    judge_model_config: Annotated[dict[str, Any] | None, AfterValidator(_in_snake_case)] = None
    num_samples: int = Field(default=5, ge=1)
    parallelism_limit: int | None = Field(default=None, ge=1, exclude=True)


@dataclass(frozen=True, slots=True)
class Judge:
    """A model that judges, for one criterion (``purpose``) and one repeat of a case."""

    llm: Llm
    options: JudgeModelOptions
    purpose: str
    repeat: int = 0

    async def ask(self, question: Question[T], sample: int = 0) -> T | LlmError:
        """One vote. After an unusable answer the judge is asked once more; then the vote is left out."""
        request = LlmRequest(
            model=self.options.judge_model,
            messages=(Message("user", sendable(question.prompt)),),
            system=sendable(question.system),
            schema=schema_of(question.shape),
            options=self.options.judge_model_config or {},
            purpose=self.purpose,
            prompt_version=question.version,
            sample=sample,
            repeat=self.repeat,
        )
        usable: dict[str, Any] = {}  # of answers that were not whole; of two verdicts on one key the later
        for _ in range(2):
            reply = await self.llm.generate(request)
            if isinstance(reply, LlmError):
                failure = reply
                break
            try:
                return question.read(parse_answer(reply.text, question.shape))
            except ValueError as error:
                failure = LlmError(LlmErrorKind.EMPTY, f"the judge's answer could not be used: {error}")
                usable |= error.value if isinstance(error, PartialAnswer) else {}
                shown = Message("model", sendable(reply.text[:_SHOWN_AGAIN]) or "(nothing)")
                note = (
                    f"Your last message cannot be used: {sendable(str(error))}.\n"
                    "Decide on the same texts again and answer with JSON of the required schema alone."
                )
                request = replace(request, messages=(*request.messages, shown, Message("user", note)))
        whole: Any = usable
        return whole or failure

    async def ask_all(self, question: Question[Any]) -> Sequence[Any] | LlmError:
        """The answers of all samples, or the first error among them."""
        answers = await asyncio.gather(*(self.ask(question, n) for n in range(self.options.num_samples)))
        return next((answer for answer in answers if isinstance(answer, LlmError)), answers)


@dataclass(frozen=True, slots=True)
class VoteResult:
    """How the samples voted. ``verdict`` is None when nothing was decided, and ``reason`` then says why.

    ``rationale`` is that of the first sample of the majority. A tie is negative.
    """

    votes: Votes
    verdict: bool | None
    rationale: str = ""
    reason: str = ""
    cast: tuple[CastVote, ...] = ()

    @property
    def undecided(self) -> str:
        """Why there is no verdict."""
        cast = self.votes.yes + self.votes.no
        so_far = f" after {self.votes.yes} yes and {self.votes.no} no" if cast else ""
        return f"no verdict{so_far}: {excerpt(self.reason, 200)}"

    def sentence(self, word: str) -> str:
        """The verdict in ``word``, how many agreed, and why."""
        agreeing = self.votes.yes if self.verdict else self.votes.no
        why = excerpt(self.rationale, 200) or "no reason given"
        return f"{word} {agreeing} of {self.votes.yes + self.votes.no}: {why}"


_NOT_ANSWERED = LlmError(LlmErrorKind.EMPTY, "the judge left it out of its answer")


async def vote(judge: Judge, question: Question[VerdictAnswer]) -> VoteResult:
    """The majority of ``num_samples`` verdicts."""
    keyed: Question[Mapping[str, VerdictAnswer]] = Question(
        question.system, question.prompt, question.shape, question.version, lambda answer: {"": question.read(answer)}
    )
    return (await vote_each(judge, keyed, ("",)))[""]


async def vote_each(
    judge: Judge, question: Question[Mapping[str, VerdictAnswer]], keys: Iterable[str]
) -> dict[str, VoteResult]:
    """A majority per key; every sample answers all keys. A key that a sample does not answer is left out there.

    Samples are asked until all majorities are certain, or until an answer says that asking is over. Never more are
    open than could decide if they agreed, so that the samples asked are the first ones, in whatever order they return.
    """
    samples = judge.options.num_samples
    limit = judge.options.parallelism_limit or samples
    polls = {key: _Poll(samples) for key in keys}
    open_: dict[asyncio.Task[Mapping[str, VerdictAnswer] | LlmError], int] = {}
    asked, over = 0, False
    try:
        while True:
            needed = 0 if over else max(poll.needed for poll in polls.values())
            while len(open_) < min(limit, needed):
                asking = judge.ask(question, asked)
                open_[asyncio.create_task(asking)] = asked
                asked += 1
            if not open_:
                return {key: poll.result() for key, poll in polls.items()}
            done, _ = await asyncio.wait(open_, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                sample, answer = open_.pop(task), task.result()
                for key, poll in polls.items():
                    poll.answers[sample] = answer if isinstance(answer, LlmError) else answer.get(key, _NOT_ANSWERED)
                over = over or (isinstance(answer, LlmError) and answer.kind in _FINAL)
    finally:
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)


@dataclass
class _Poll:
    """The votes on one thing so far, by sample."""

    samples: int
    answers: dict[int, VerdictAnswer | LlmError] = field(default_factory=dict)

    @property
    def votes(self) -> Votes:
        verdicts = [answer.yes for answer in self.answers.values() if isinstance(answer, VerdictAnswer)]
        yes = sum(verdicts)
        return Votes(yes=yes, no=len(verdicts) - yes, left_out=len(self.answers) - len(verdicts))

    @property
    def needed(self) -> int:
        """How many further answers can decide, if they agree; 0 when nothing can change the verdict any more."""
        votes, left = self.votes, self.samples - len(self.answers)
        # yes + k > no + left - k: yes, whatever comes after. no + k >= yes + left - k: no, for a tie is no.
        for_yes = (votes.no + left - votes.yes) // 2 + 1
        for_no = (votes.yes + left - votes.no + 1) // 2
        return min(left, max(0, min(for_yes, for_no)))

    def result(self) -> VoteResult:
        answers = [self.answers[sample] for sample in sorted(self.answers)]
        verdict = self.votes.verdict if self.needed == 0 else None
        if verdict is None:
            lost = [answer for answer in answers if isinstance(answer, LlmError)]
            why = next((error for error in lost if error.kind in _FINAL), lost[0])
            return VoteResult(self.votes, None, reason=why.message)
        cast = [answer for answer in answers if isinstance(answer, VerdictAnswer)]
        first = next(answer for answer in cast if answer.yes is verdict)
        words: tuple[CastVote, ...] = ()
        if len(cast) > 1 and self.votes.no:
            words = tuple(
                CastVote(yes=answer.yes, rationale=excerpt(answer.rationale.strip(), _VOTE_WORDS)) for answer in cast
            )
        return VoteResult(self.votes, verdict, first.rationale.strip(), cast=words)


class JudgedCriterion(Criterion):
    """A criterion that asks a judge. ``prompt_names`` are its files in ``criteria/prompts``.

    ``calls`` is what one turn (or case) takes, ``sampled`` whether each of them is a vote of ``num_samples``.
    """

    waits: ClassVar[bool] = True
    prompt_names: ClassVar[tuple[str, ...]]
    calls: ClassVar[int] = 1
    sampled: ClassVar[bool] = True
    relaxed_when: ClassVar[Mapping[str, Relaxed]] = {"judge_model_options.num_samples": lower}

    judge_model_options: JudgeModelOptions = JudgeModelOptions()

    def version(self) -> str:
        return "+".join([self.scoring_version, *(load_prompt(name)[0] for name in self.prompt_names)])

    def models(self) -> tuple[str, ...]:
        return (self.judge_model_options.judge_model,)

    def refuse(self, sample: Sample) -> CriterionScore | None:
        if refused := super().refuse(sample):
            return refused
        has_model = sample.context.llm is not None
        return None if has_model else self.no_score(ScoreStatus.ERROR, "this run has no model to judge with")

    def judge(self, sample: Sample) -> Judge:
        """Who judges this attempt, which is not refused."""
        assert sample.context.llm is not None  # noqa: S101 - see ``refuse``
        return Judge(sample.context.llm, self.judge_model_options, self.name, sample.repeat)
