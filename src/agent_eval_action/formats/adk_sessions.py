"""Sessions as google-adk writes them: exports of ``adk web`` and ``adk run``, and the fixtures of ``adk test``.

As an eval file a session is one case: what the agent did then is what is expected now. As a recording it is what the
agent did. A fixture of ``adk test`` holds the events alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pydantic import ConfigDict, Field

from agent_eval_action.formats.base import Format, Reading
from agent_eval_action.formats.validation import check_genai, validate
from agent_eval_action.results.base import AdkModel
from agent_eval_action.results.evalset import (
    AppDetails,
    Content,
    EvalCase,
    EvalSet,
    Invocation,
    InvocationEvent,
    InvocationEvents,
    JsonObject,
    PastEvent,
)

_SUFFIXES: Final = (".session", ".json")


class SessionEvent(PastEvent):
    """One event; ``error_code`` says why a model gave no answer."""

    partial: bool | None = None
    error_code: str | None = None
    error_message: str | None = None


class AdkSession(AdkModel):
    """A session, or a fixture with nothing but its events."""

    model_config = ConfigDict(extra="ignore")

    id: str = ""
    state: JsonObject | None = None
    events: tuple[SessionEvent, ...] = ()

    def turns(self) -> tuple[Invocation, ...]:
        """What the agent did with each message of the user."""
        return turns_of_events(event for event in self.events if not event.partial)


def is_session(value: Any) -> bool:
    """An object with events that have an author, and without cases."""
    events = value.get("events") if isinstance(value, dict) else None
    if not isinstance(events, list) or not events or "eval_cases" in value or "evalCases" in value:
        return False
    return all(isinstance(event, dict) and isinstance(event.get("author"), str) for event in events)


def turns_of_events(
    events: Iterable[PastEvent], prompt: Content | None = None, app_details: AppDetails | None = None
) -> tuple[Invocation, ...]:
    """The turns of a conversation that is over: a message of the user, or ``prompt``, begins each."""
    turns: list[tuple[Content, list[PastEvent]]] = [(prompt, [])] if prompt is not None else []
    for event in events:
        if event.author == "user" and event.content is not None:
            turns.append((event.content, []))
        elif turns:
            turns[-1][1].append(event)
    return tuple(
        Invocation(
            invocation_id=f"recorded-{number}",
            user_content=message,
            final_response=_final_response(made),
            intermediate_data=InvocationEvents(invocation_events=tuple(map(_invocation_event, made))),
            app_details=app_details,
        )
        for number, (message, made) in enumerate(turns)
    )


def _invocation_event(event: PastEvent) -> InvocationEvent:
    return InvocationEvent(
        author=event.author,
        content=event.content,
        usage_metadata=event.usage_metadata,
        model_version=event.model_version,
    )


def _final_response(events: Sequence[PastEvent]) -> Content | None:
    """The last event that has text, as agents-cli takes it."""
    with_text = (event.content for event in reversed(events) if event.content and event.content.text)
    return next(with_text, None)


class _Fixture(AdkSession):
    """A session that is to be an eval file: each event is validated."""

    events: tuple[SessionEvent, ...] = Field(min_length=1)


def _read(reading: Reading) -> EvalSet | None:
    """A set of one case, which has the file's name."""
    for index, event in enumerate(reading.value["events"]):
        check_genai(event.get("content"), "Content", ("events", index, "content"), reading)
    session = validate(_Fixture, reading.value, None, reading)
    if session is None or reading.errors:
        return None
    turns = session.turns()
    if not turns:
        reading.error(("events",), "no event is the user's: there is nothing to send to the agent")
        return None
    name = reading.name.rpartition("/")[2]
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    case = EvalCase(eval_id=name, conversation=tuple(_expected(turn) for turn in turns))
    return EvalSet(eval_set_id=reading.name, eval_cases=(case.at_line(reading.source.line(("events",))),))


def _expected(turn: Invocation) -> Invocation:
    """The turn without what was measured of it then."""
    return Invocation(
        user_content=turn.user_content, final_response=turn.final_response, intermediate_data=turn.intermediate_data
    )


ADK_SESSION: Final = Format("adk_session", is_session, _read)
