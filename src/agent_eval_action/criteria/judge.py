"""Ask a judge: fence texts as data, parse answers of a given shape, and take the majority of several samples."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

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
_CODE_BLOCK = re.compile(r"\s*```(?:json)?[ \t]*\r?\n(.*?)\r?\n?[ \t]*```\s*", re.DOTALL | re.IGNORECASE)
_SHOWN_AGAIN = 20_000
_VOTE_WORDS = 300
_FINAL = frozenset({LlmErrorKind.BUDGET, LlmErrorKind.REFUSED})  # asking again, or for another sample, is pointless


def fences(texts: Mapping[str, str]) -> dict[str, str]:
    """Wrap each text of a prompt, by label, in tags that contain a digest of all texts.

    The digest is stable, so answers can be cached, and cannot be forged: a text with a valid tag in it would have to
    contain its own digest. Texts are never cut, since a verdict on a part is worthless; the provider refuses what is
    over the model's limit, which becomes an error.
    """
    sent = {label: sendable(text) for label, text in texts.items()}
    digest = hashlib.sha256(json.dumps(sent, ensure_ascii=False).encode()).hexdigest()[:_DIGITS]
    return {label: f"<{label}-{digest}>\n{text}\n</{label}-{digest}>" for label, text in sent.items()}


def as_json(value: Any) -> str:
    """A value as JSON for a judge to read. Raises RecursionError if it is nested too deeply."""
    return json.dumps(value, ensure_ascii=False, indent=1, default=str)


class Answer(BaseModel):
    """Base of the shapes of judges' answers; no other fields are allowed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class VerdictAnswer(Answer):
    """The answer to a yes/no question. The rationale comes first so that the verdict follows from it."""

    rationale: str = Field(description="Why, in one or two sentences.")
    verdict: Literal["yes", "no"]

    @property
    def yes(self) -> bool:
        return self.verdict == "yes"


@cache
def schema_of(shape: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a shape, in the subset that Gemini and OpenAI both accept."""
    made = shape.model_json_schema()
    plain: dict[str, Any] = _portable_schema(made, made.pop("$defs", {}))
    return plain


def _portable_schema(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Resolve references, drop titles and our docstrings, and write a constant as an enum of one."""
    if isinstance(schema, list):
        return [_portable_schema(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _portable_schema(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    own = {"title"} | ({"description"} if "properties" in schema else set())
    kept = {key: value for key, value in schema.items() if key not in own}
    if "const" in kept:
        kept["enum"] = [kept.pop("const")]
    if "properties" in kept:
        kept["properties"] = {name: _portable_schema(inner, definitions) for name, inner in kept["properties"].items()}
    return {key: value if key == "properties" else _portable_schema(value, definitions) for key, value in kept.items()}


def parse_answer(text: str, shape: type[BaseModel]) -> Any:
    """Parse an answer. Raises ValueError with a sentence for the model if the text is not JSON of this shape.

    Models without structured output may put the JSON into a code block, but no text around it: searching for JSON
    could find an answer that the judged text planted.
    """

    def refuse_constant(constant: str) -> Any:
        raise ValueError(f"it is not JSON: {constant} is no JSON number")

    def without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):  # two verdicts under one key are ambiguous
            raise ValueError("it is not JSON that has one meaning: a key is there twice")
        return found

    block = _CODE_BLOCK.fullmatch(text)
    inner = block[1] if block else text
    try:
        value = json.loads(inner, parse_constant=refuse_constant, object_pairs_hook=without_repetition)
        if "\\u" in inner:  # an escape can yield a lone surrogate, which reports could not be written with
            value = sendable_json(value)
        return shape.model_validate(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("it is not the JSON that was asked for: it is nested too deeply") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step + 1 if isinstance(step, int) else step) for step in first["loc"])
        given = "" if first["type"] in ("missing", "extra_forbidden") else f", and is {shorten(first['input'])}"
        raise ValueError(f"{f'`{place}`' if place else 'the answer'}: {first['msg']}{given}") from None


class PartialAnswer(ValueError):  # noqa: N818 - half an answer, which callers still use
    """Some keys of an answer are missing. The judge is asked again, and both answers are merged."""

    def __init__(self, missing: str, value: Mapping[str, Any]) -> None:
        super().__init__(missing)
        self.value = value


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """A question for a judge.

    ``system`` holds the instructions, ``prompt`` the fenced texts. ``shape`` is the answer's type, usually an
    ``Answer``; ``version`` the version of the prompt. ``read`` turns an answer into the result, or raises ValueError
    with a sentence for the model if an answer has the shape but cannot be used.
    """

    system: str
    prompt: str
    shape: type[BaseModel]
    version: str
    read: Callable[[Any], T]

    def accepts(self, text: str) -> bool:
        """Whether an answer can be used, or a part of it."""
        try:
            self.read(parse_answer(text, self.shape))
        except ValueError as error:
            return isinstance(error, PartialAnswer)
        return True


@cache
def load_prompt(name: str) -> tuple[str, str]:
    """Return version and text of a file in ``criteria/prompts``, with the rule about fences appended.

    The version covers both texts.
    """
    (version, text), (shared_version, shared) = (
        read_prompt("agent_eval_action.criteria", f"prompts/{each}") for each in (name, "fences")
    )
    return f"{name}-{version}.{shared_version}", f"{text}\n\n{shared}"


_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)(?:\.[\w.]*)?\}")


def placeholders(template: str) -> set[str]:
    """The placeholders of a user's prompt, such as ``{answer}``."""
    return {match[1] for match in _PLACEHOLDER.finditer(template)}


def ask_about(
    prompt_name: str, texts: Mapping[str, str], shape: type[BaseModel], read: Callable[[Any], T], template: str = ""
) -> Question[T]:
    """A question about these texts, with the prompt ``prompt_name`` of ``criteria/prompts``.

    The user's ``template`` is filled with the fenced texts; the prompt then only prescribes the answer's form.
    """
    version, system = load_prompt(prompt_name)
    fenced = fences(texts)
    prompt = _PLACEHOLDER.sub(lambda match: fenced.get(match[1], match[0]), template)
    return Question(system, prompt or "\n\n".join(fenced.values()), shape, version, read)


def _in_snake_case(config: dict[str, Any] | None) -> dict[str, Any] | None:
    """Spell the fields of GenerateContentConfig in snake_case, so that the spelling does not make another judge."""
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

    ``judge_model_config`` is passed to the model unchanged except for snake_case keys. ``parallelism_limit`` bounds
    the concurrent samples of one question. ADK's limit is per metric and 1 by default, which would serialize all cases,
    so the default here is None (only the rate limits apply). It affects no score and is in no digest.
    """

    judge_model: str = Field(default="gemini-2.5-flash", min_length=1)
    judge_model_config: Annotated[dict[str, Any] | None, AfterValidator(_in_snake_case)] = None
    num_samples: int = Field(default=5, ge=1)
    parallelism_limit: int | None = Field(default=None, ge=1, exclude=True)


@dataclass(frozen=True, slots=True)
class Judge:
    """A model that judges one repeat of a case for one criterion (``purpose``)."""

    llm: Llm
    options: JudgeModelOptions
    purpose: str
    repeat: int = 0

    async def ask(self, question: Question[T], sample: int = 0) -> T | LlmError:
        """Get one vote. After an unusable answer, asks once more and merges partial answers, or returns the error."""
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
        usable: dict[str, Any] = {}  # merged partial answers; the later verdict on a key wins
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
                # A vote that is lost is not lost again from the cache; one that was rescued stays as it is.
                messages = (*request.messages, shown, Message("user", note))
                request = replace(request, messages=messages, usable=question.accepts)
        whole: Any = usable
        return whole or failure

    async def ask_all(self, question: Question[Any]) -> Sequence[Any] | LlmError:
        """The answers of all samples, or the first error among them."""
        answers = await asyncio.gather(*(self.ask(question, n) for n in range(self.options.num_samples)))
        return next((answer for answer in answers if isinstance(answer, LlmError)), answers)


@dataclass(eq=False)
class Poll:
    """The answers for one key, by sample; the majority decides, and a tie is a no.

    Everything below ``needed`` is for when the last answer is there.
    """

    samples: int
    answers: dict[int, VerdictAnswer | LlmError] = field(default_factory=dict)

    @property
    def votes(self) -> Votes:
        verdicts = [answer.yes for answer in self.answers.values() if isinstance(answer, VerdictAnswer)]
        yes = sum(verdicts)
        return Votes(yes=yes, no=len(verdicts) - yes, left_out=len(self.answers) - len(verdicts))

    @property
    def needed(self) -> int:
        """The smallest number of further answers that decide if they agree; 0 once the verdict is certain."""
        votes, left = self.votes, self.samples - len(self.answers)
        # After k more yes, yes is certain if yes + k > no + left - k. After k more no, no is certain if
        # no + k >= yes + left - k, since a tie is a no.
        for_yes = (votes.no + left - votes.yes) // 2 + 1
        for_no = (votes.yes + left - votes.no + 1) // 2
        return min(left, max(0, min(for_yes, for_no)))

    @cached_property
    def verdict(self) -> bool | None:
        """None if it is not certain, or if there is no vote."""
        return None if self.needed else self.votes.verdict

    @property
    def rationale(self) -> str:
        """The first majority vote's."""
        return next((answer.rationale.strip() for answer in self._cast if answer.yes is self.verdict), "")

    @property
    def cast(self) -> tuple[CastVote, ...]:
        """Each vote, in the order of the requests; none if there is only one or all say yes."""
        cast = self._cast
        if self.verdict is None or len(cast) == 1 or all(answer.yes for answer in cast):
            return ()
        words = (excerpt(answer.rationale.strip(), _VOTE_WORDS) for answer in cast)
        return tuple(CastVote(yes=answer.yes, rationale=why) for answer, why in zip(cast, words, strict=True))

    @property
    def undecided(self) -> str:
        """Why there is no verdict."""
        lost = [answer for _, answer in sorted(self.answers.items()) if isinstance(answer, LlmError)]
        why = next((error for error in lost if error.kind in _FINAL), lost[0])
        so_far = f" after {self.votes.yes} yes and {self.votes.no} no" if self._cast else ""
        return f"no verdict{so_far}: {excerpt(why.message, 200)}"

    def sentence(self, word: str) -> str:
        """The verdict (``word``) with the number of samples that agreed and the rationale."""
        agreeing = self.votes.yes if self.verdict else self.votes.no
        return f"{word} {agreeing} of {len(self._cast)}: {excerpt(self.rationale, 200) or 'no reason given'}"

    @cached_property
    def _cast(self) -> list[VerdictAnswer]:
        return [answer for _, answer in sorted(self.answers.items()) if isinstance(answer, VerdictAnswer)]


_NOT_ANSWERED = LlmError(LlmErrorKind.EMPTY, "the judge left it out of its answer")


async def vote(judge: Judge, question: Question[Any]) -> Poll:
    """Take the majority of ``num_samples`` verdicts."""
    keyed = replace(question, read=lambda answer: {"": question.read(answer)})
    return (await vote_each(judge, keyed, ("",)))[""]


async def vote_each(
    judge: Judge, question: Question[Mapping[str, VerdictAnswer]], keys: Iterable[str]
) -> dict[str, Poll]:
    """Take a majority per key. Each sample answers all keys; a key it leaves unanswered gets no vote from it.

    Asks samples until every majority is certain, or until an error shows that asking again is pointless. It never has
    more requests open than the votes that could decide if they agreed, so which samples are used does not depend on
    the order of the answers.
    """
    samples = judge.options.num_samples
    limit = judge.options.parallelism_limit or samples
    polls = {key: Poll(samples) for key in keys}
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
                return polls
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


class JudgedCriterion(Criterion):
    """A criterion that asks a judge. ``prompt_names`` are its files in ``criteria/prompts``.

    ``calls`` is the number of questions per turn (or case); ``sampled``: each is voted on by ``num_samples``.
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
        if sample.context.llm is None:
            return self.no_score(ScoreStatus.ERROR, "this run has no model to judge with")
        return None

    def judge(self, sample: Sample) -> Judge:
        """The judge of an attempt that was not refused."""
        assert sample.context.llm is not None  # noqa: S101 - see ``refuse``
        return Judge(sample.context.llm, self.judge_model_options, self.name, sample.repeat)
