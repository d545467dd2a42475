"""Sessions written by google-adk: exports of ``adk web`` and ``adk run``, and fixtures of ``adk test``.

As an eval file, a session is one case that expects what the agent did in it. In a folder ``tests`` it is a fixture of
``adk test``, whose model answers are replayed. As a recording, it is what the agent did.

Tests of ``adk conformance`` are folders with spec.yaml, recordings and the recorded session. Each has one case per
recorded mode: complete answers, or streamed ones (``-sse``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from pydantic import ConfigDict, Field, ValidationError

from agent_eval_action.diagnostics.reader import MAX_JSON_BYTES, Source, read_bytes
from agent_eval_action.errors import EvalFileError, Unreadable
from agent_eval_action.formats.base import Format, Reading, check_genai, validate
from agent_eval_action.results.base import AdkModel, LenientModel
from agent_eval_action.results.evalset import (
    FIXTURES,
    AppDetails,
    Content,
    EvalCase,
    EvalSet,
    Invocation,
    InvocationEvent,
    InvocationEvents,
    JsonObject,
    Part,
    PastEvent,
    Replay,
    ReplayCase,
    SessionInput,
)

_USER: Final = "adk_conformance_test_user"
_RECORD: Final = "record it anew: adk conformance record"
_SET_RESPONSE: Final = "set_model_response"
_REQUESTS: Final = ("adk_request_confirmation", "adk_request_credential")


class SessionEvent(PastEvent):
    """An event; ``error_code`` says why a model gave no answer."""

    partial: bool | None = None
    error_code: str | None = None
    error_message: str | None = None
    node_info: JsonObject | None = None
    actions: JsonObject | None = None
    long_running_tool_ids: tuple[str, ...] | None = None

    @property
    def node_path(self) -> str:
        """The node of the agent that made the event; "" for a message from outside."""
        path = (self.node_info or {}).get("path")
        return path if isinstance(path, str) else ""


class AdkSession(LenientModel):
    """A session, or a fixture that has only events."""

    id: str = ""
    state: JsonObject | None = None
    events: tuple[SessionEvent, ...] = ()

    def turns(self) -> tuple[Invocation, ...]:
        """The turns: each user message with what the agent did."""
        return turns_of_events(event for event in self.events if not event.partial)

    def replay(self, events: Sequence[JsonObject], **recorded: Any) -> Replay:
        """The data to replay the session; ``events`` are its events as written in the file."""
        expected: list[list[JsonObject]] = []
        for event, written in zip(self.events, events, strict=True):
            if _is_message(event):
                expected.append([])
            elif expected and not event.partial:
                expected[-1].append(written)
        return Replay(expected=tuple(map(tuple, expected)), **recorded)


def is_session(value: Any) -> bool:
    """Whether a value is an object without cases whose events all have an author."""
    events = value.get("events") if isinstance(value, dict) else None
    if not isinstance(events, list) or not events or "eval_cases" in value or "evalCases" in value:
        return False
    return all(isinstance(event, dict) and isinstance(event.get("author"), str) for event in events)


def turns_of_events(
    events: Iterable[PastEvent], prompt: Content | None = None, app_details: AppDetails | None = None
) -> tuple[Invocation, ...]:
    """The turns of a finished conversation; each begins with a user message, the first with ``prompt`` if given."""
    turns: list[tuple[Content, list[PastEvent]]] = [(prompt, [])] if prompt is not None else []
    for event in events:
        if event.content is not None and _is_message(event):
            turns.append((event.content, []))
        elif turns:
            turns[-1][1].append(event)
    return tuple(
        Invocation(
            invocation_id=f"recorded-{number}",
            user_content=message,
            # the last content with text, as in agents-cli
            final_response=next((e.content for e in reversed(made) if e.content and e.content.text), None),
            intermediate_data=InvocationEvents(
                invocation_events=tuple(
                    InvocationEvent(
                        author=event.author,
                        content=event.content,
                        usage_metadata=event.usage_metadata,
                        model_version=event.model_version,
                    )
                    for event in made
                )
            ),
            app_details=app_details,
        )
        for number, (message, made) in enumerate(turns)
    )


def _is_message(event: PastEvent) -> bool:
    """Whether the event is a user message. Agents also make events as the user, but those have a node path."""
    return event.author == "user" and event.content is not None and not getattr(event, "node_path", "")


class _Fixture(AdkSession):
    """A session that is an eval file, with every event validated. ``mocks``: random numbers by function."""

    events: tuple[SessionEvent, ...] = Field(min_length=1)
    mocks: dict[str, tuple[float, ...]] | None = None


def _read(reading: Reading) -> EvalSet | None:
    """A set with one case, named after the file."""
    check_genai(reading.value, {"events": [{"content": "Content"}]}, (), reading)
    session = validate(_Fixture, reading.value, None, reading)
    if session is None or reading.errors:
        return None
    turns = session.turns()
    if not turns:
        reading.error(("events",), "no event is the user's: there is nothing to send to the agent")
        return None
    name = reading.name.rpartition("/")[2].removesuffix(".session").removesuffix(".json")
    case = EvalCase(eval_id=name, conversation=tuple(turn.model_copy(update={"invocation_id": ""}) for turn in turns))
    if reading.source.path.parent.name == FIXTURES:
        case = ReplayCase(eval_id=name, conversation=case.conversation, replay=_fixture(session, reading.value))
    return EvalSet(eval_set_id=reading.name, eval_cases=(case.at_line(reading.source.line(("events",))),))


def _fixture(session: AdkSession, value: JsonObject) -> Replay:
    """The replay data of a fixture. Like `adk test`, replays only model events that a model actually produced."""
    answers: list[tuple[str, int, JsonObject]] = []  # answers of parallel agents are sorted by agent number
    made_for_model = False
    for event in session.events:
        content, parts = event.content, event.parts
        if content is None or event.partial:
            continue
        if content.role == "user":
            responses = [part.function_response for part in parts if part.function_response]
            made_for_model = made_for_model or any(response.name == _SET_RESPONSE for response in responses)
        elif content.role == "model" and made_for_model:
            made_for_model = False
        elif content.role == "model" and not any(_asks_user(part, event) for part in parts):
            group, _, number = event.author.rpartition("__")
            parallel = bool(group) and number.isdecimal()
            answers.append((group if parallel else "", int(number) if parallel else 0, content.wire()))
    in_order: list[JsonObject] = []
    for group, items in groupby(answers, key=lambda answer: answer[0]):
        in_order += [item[2] for item in (sorted(items, key=lambda item: item[1]) if group else items)]
    ids = [call.id for event in session.events for call in event.function_calls() if call.id]
    recorded = {"answers": tuple(in_order), "call_ids": tuple(ids), "mocks": value.get("mocks") or {}}
    return session.replay(value["events"], kind="test", **recorded)


def _asks_user(part: Part, event: SessionEvent) -> bool:
    """Whether the call is one that google-adk itself makes when an agent waits for the user."""
    name = part.function_call.name if part.function_call else None
    return name in _REQUESTS or (name == "adk_request_input" and "/" in event.node_path)


ADK_SESSION: Final = Format("adk_session", is_session, _read)


class UserMessage(AdkModel):
    """A user message: text or content, and changes of the session state."""

    model_config = ConfigDict(extra="ignore", alias_generator=None)

    text: str | None = None
    content: Content | None = None
    state_delta: JsonObject | None = None


class ConformanceSpec(AdkModel):
    """A spec.yaml; ``agent`` is the name of the agent's folder."""

    model_config = ConfigDict(alias_generator=None)

    description: str
    agent: str
    initial_state: JsonObject = Field(default_factory=dict)
    user_messages: tuple[UserMessage, ...] = ()


def _read_conformance(reading: Reading) -> EvalSet | None:
    spec = validate(ConformanceSpec, reading.value, None, reading)
    if spec is None:
        return None
    for number, message in enumerate(spec.user_messages):
        if message.text is None and message.content is None:
            reading.error(("user_messages", number), "a message has a text or a content")
    if not spec.user_messages:
        reading.error(("user_messages",), "there is nothing to send to the agent")
    cases = [
        case for suffix in ("", "-sse") if not reading.errors and (case := _conformance_case(spec, suffix, reading))
    ]
    if not cases and not reading.errors:
        reading.error((), "there is no generated-recordings.yaml beside it", hint=_RECORD)
    return EvalSet(eval_set_id=reading.name, description=spec.description, eval_cases=tuple(cases))


def _conformance_case(spec: ConformanceSpec, suffix: str, reading: Reading) -> ReplayCase | None:
    """The case of a streaming mode; None if that mode was not recorded, or after an error."""
    path = reading.source.path
    recordings = path.with_name(f"generated-recordings{suffix}.yaml")
    if not recordings.exists():
        return None
    beside = path.with_name(f"generated-session{suffix}.yaml")
    try:
        text = read_bytes(recordings, reading.workspace, MAX_JSON_BYTES).decode()
        value = Source.read(beside, workspace=reading.workspace, error=EvalFileError).value
        session = AdkSession.model_validate(value) if is_session(value) else AdkSession()
    except (Unreadable, UnicodeDecodeError) as error:
        reading.error((), f"{recordings.name} beside it cannot be read: {error}", hint=_RECORD)
        return None
    except EvalFileError as error:
        for problem in error.problems:
            reading.add_error(problem)
        return None
    except ValidationError as error:
        reading.error((), f"{beside.name} beside it is no session: {error.errors()[0]['msg']}", hint=_RECORD)
        return None
    turns, messages = session.turns(), spec.user_messages
    if len(turns) != len(messages):
        recorded = f"{beside.name} beside it has {len(turns)} messages of the user, and this {len(messages)}"
        reading.error(("user_messages",), recorded, hint=_RECORD)
        return None
    deltas = tuple(message.state_delta or {} for message in messages)
    recorded_run: JsonObject = {"recordings": text, "streamed": bool(suffix), "state_deltas": deltas}
    replay = session.replay(value["events"], kind="conformance", **recorded_run)
    contents = (message.content or Content(role="user", parts=(Part(text=message.text),)) for message in messages)
    case = ReplayCase(
        eval_id=f"{path.absolute().parent.name}{suffix}",
        conversation=tuple(
            turn.model_copy(update={"invocation_id": "", "user_content": content})
            for turn, content in zip(turns, contents, strict=True)
        ),
        session_input=SessionInput(app_name=spec.agent.rpartition("/")[2], user_id=_USER, state=spec.initial_state),
        replay=replay,
    )
    return case.at_line(1)


ADK_CONFORMANCE: Final = Format(
    "adk_conformance",
    lambda value: isinstance(value, dict) and isinstance(value.get("user_messages"), list) and "agent" in value,
    _read_conformance,
)
