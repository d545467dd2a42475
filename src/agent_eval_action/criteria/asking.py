"""One question to a judge and one sample of its answer: asked, read strictly, asked again once when unusable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from agent_eval_action.criteria.answer import parsed
from agent_eval_action.criteria.fence import printable
from agent_eval_action.criteria.judge_options import JudgeModelOptions
from agent_eval_action.llm.base import Llm, LlmError, LlmErrorKind, LlmRequest, Message

T = TypeVar("T")

_SHOWN_AGAIN = 20_000


class Partial(ValueError):  # noqa: N818 - not an error to those who ask: half an answer
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
class NoAnswer:
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

    async def ask(self, question: Question[T], sample: int = 0) -> T | NoAnswer:
        """One sample. An unusable answer is asked for again once, with what was wrong; then it is left out."""
        request = self._request(question, sample)
        first = await self.llm.generate(request)
        if isinstance(first, LlmError):
            return NoAnswer(first.message, first.kind)
        try:
            return _read(question, first.text)
        except ValueError as error:
            wrong = error
        second = await self.llm.generate(_again(request, first.text, str(wrong)))
        if isinstance(second, LlmError):
            return _rest(wrong) or NoAnswer(second.message, second.kind)
        try:
            return _read(question, second.text)
        except ValueError as error:
            return _rest(wrong, error) or NoAnswer(f"the judge's answer could not be used: {error}")

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
        found |= error.value if isinstance(error, Partial) else {}
    return found


def _again(request: LlmRequest, answered: str, wrong: str) -> LlmRequest:
    """The same conversation, and what was wrong with its end."""
    note = (
        f"Your last message cannot be used: {printable(wrong)}.\n"
        "Decide on the same texts again and answer with JSON of the required schema alone."
    )
    said = Message("model", printable(answered[:_SHOWN_AGAIN]) or "(nothing)")
    return replace(request, messages=(*request.messages, said, Message("user", note)))
