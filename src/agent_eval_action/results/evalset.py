"""Eval sets: cases, their turns and events in ADK's form, and the personas of simulated users."""

# Without annotations as text: pydantic would compile each one again, at every start of the command.

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Discriminator, Field, PrivateAttr, SerializeAsAny, Tag

from agent_eval_action.diagnostics.suggestions import did_you_mean
from agent_eval_action.results.base import AdkModel, Frozen, LenientModel

BUILT_IN_PERSONAS = ("EXPERT", "NOVICE", "EVALUATOR")

EVAL_SUFFIXES: Final = (".evalset.json", ".test.json")
"""File name endings by which eval files are found in folders. A file given explicitly may have another name."""

FIXTURES: Final = "tests"
"""The subfolder of an agent in which `adk test` looks for recorded sessions."""
CONFORMANCE_SPEC: Final = "spec.yaml"
"""The file by which `adk conformance` recognises a test's folder."""


def is_replayed(path: Path) -> bool:
    """Whether an eval file is, by its name and folder, a recording of models' answers that is replayed."""
    return path.name == CONFORMANCE_SPEC or (path.parent.name == FIXTURES and not path.name.endswith(EVAL_SUFFIXES))


class ColumnMapping(Frozen):
    """The roles of a table's columns: names, or paths like ``inputs.question`` into a column of objects.

    Other roles go to columns with their usual names. ``metadata``: further columns for metrics; None: all others.
    """

    id: str | None = None
    prompt: str | None = None
    reference: str | None = None
    expected_tools: str | None = None
    history: str | None = None
    state: str | None = None
    metadata: tuple[str, ...] | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """The columns with a role other than metadata."""
        return tuple(name for role, name in self if role != "metadata" and name is not None)


class PersonaBehavior(Frozen):
    """A behaviour of a persona, and the rubrics that recognise violations. snake_case only, as in ADK."""

    model_config = ConfigDict(extra="ignore")  # as in ADK

    name: str
    description: str
    behavior_instructions: tuple[str, ...]
    violation_rubrics: tuple[str, ...]


class Persona(Frozen):
    """A custom persona. The built-in ones are referred to by their ids (``BUILT_IN_PERSONAS``)."""

    model_config = ConfigDict(extra="ignore")  # as in ADK

    id: str
    description: str
    behaviors: tuple[PersonaBehavior, ...]


def _persona_tag(value: Any) -> str:
    return "<persona id>" if isinstance(value, str) else "<persona>"


PersonaRef = Annotated[
    Annotated[str, Tag("<persona id>")] | Annotated[Persona, Tag("<persona>")],
    Discriminator(_persona_tag),
]


@cache
def _persona_file() -> dict[str, Any]:
    import yaml  # noqa: PLC0415 - only simulated users need it

    content: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("personas.yaml").read_text("utf-8"))
    return content


def personas_version() -> str:
    """Return the version of the built-in behaviours. Scores of different versions are not comparable."""
    return str(_persona_file()["version"])


def default_behaviors() -> tuple[PersonaBehavior, ...]:
    """Return the behaviours of a simulated user without a persona."""
    return _behaviors(_persona_file()["default_behaviors"])


def find_persona(ref: str | Persona) -> Persona:
    """Return a built-in persona by its id, or a custom one as it is.

    Raises ValueError for an unknown id; ``formats`` refuses eval files that name one.
    """
    if isinstance(ref, Persona):
        return ref
    if ref not in BUILT_IN_PERSONAS:
        hint = did_you_mean(ref, BUILT_IN_PERSONAS) or f"the built-in ones are {', '.join(BUILT_IN_PERSONAS)}"
        raise ValueError(f"no persona has the id `{ref}`: {hint}")
    fields = _persona_file()["personas"][ref]
    return Persona(id=ref, description=fields["description"], behaviors=_behaviors(fields["behaviors"]))


def _behaviors(names: list[str]) -> tuple[PersonaBehavior, ...]:
    return tuple(PersonaBehavior.model_validate(_persona_file()["behaviors"][name]) for name in names)


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Replace each ``{{ name }}`` by its value, unless it has none. Placeholders inside values are not replaced."""
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: values.get(match[1], match[0]), text)


@dataclass(frozen=True, slots=True)
class FunctionReply:
    """What a metric function returned, as JSON, or the error (a sentence and its traceback)."""

    value: Any = None
    error: str = ""
    traceback: str = ""


AnnotationLevel = Literal["error", "warning", "notice"]


class Annotation(Frozen):
    """A message shown at a line of a file. ``path``: relative to the workspace, "" without a file; ``line`` from 1."""

    level: AnnotationLevel
    message: str
    title: str = ""
    path: str = ""
    line: int | None = None


JsonObject = dict[str, Any]


class FunctionCall(AdkModel):
    """A requested tool call. We treat ``args`` None and {} alike, unlike ADK.

    google-genai's other fields are kept as extras in snake_case; ``formats`` refuses unknown ones in eval files.
    """

    model_config = ConfigDict(extra="allow")

    id: str | None = None
    name: str | None = None
    args: JsonObject | None = None


class FunctionResponse(AdkModel):
    """The result of a tool call."""

    model_config = ConfigDict(extra="allow")

    id: str | None = None
    name: str | None = None
    response: JsonObject | None = None


_CODE = ("executable_code", "code_execution_result")


class Part(AdkModel):
    """A part of a content. Media are dicts as in ADK's JSON; other kinds are kept as extras in snake_case."""

    model_config = ConfigDict(extra="allow")

    text: str | None = None
    thought: bool | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None
    inline_data: JsonObject | None = None
    file_data: JsonObject | None = None

    @property
    def is_other_than_text(self) -> bool:
        """Whether it contains a call, a result, media or code (signatures of thoughts are none of these)."""
        known = (self.function_call, self.function_response, self.inline_data, self.file_data)
        extra = self.model_extra or {}
        return any(value is not None for value in (*known, *(extra.get(name) for name in _CODE)))


class Content(AdkModel):
    """A message."""

    parts: tuple[Part, ...] | None = None
    role: str | None = None

    @property
    def text(self) -> str:
        """The non-empty text parts, joined by newlines. Unlike ADK, we leave out thoughts."""
        texts = [part.text for part in self.parts or () if part.text and not part.thought]
        return texts[0] if len(texts) == 1 else "\n".join(texts)


class IntermediateData(AdkModel):
    """Tool calls and intermediate answers in the form of hand-written eval files."""

    tool_uses: tuple[FunctionCall, ...] = ()
    tool_responses: tuple[FunctionResponse, ...] = ()
    intermediate_responses: tuple[tuple[str, tuple[Part, ...]], ...] = ()


class InvocationEvent(LenientModel):
    """A recorded event of a turn. Unknown keys are ignored, as in ADK."""

    author: str
    content: Content | None = None
    grounding_metadata: JsonObject | None = None
    usage_metadata: JsonObject | None = None
    model_version: str | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the event's content; () without any."""
        return (self.content.parts or ()) if self.content else ()

    @property
    def is_model_call(self) -> bool:
        """Whether the event is an answer of a model, which has usage or a model version."""
        return self.usage_metadata is not None or self.model_version is not None

    def function_calls(self) -> list[FunctionCall]:
        """Return the tool calls in the event."""
        return [part.function_call for part in self.parts if part.function_call]


class InnerEvent(InvocationEvent):
    """An event of an agent that was called as a tool (ADK's AgentTool). ``within``: the id of that call."""

    within: str | None = None


class InvocationEvents(AdkModel):
    """The events of a recorded turn, in order."""

    invocation_events: tuple[InvocationEvent, ...] = ()


def _intermediate_tag(value: Any) -> str:
    """Return the tag of the intended form, the only one that errors describe. ``{}`` is IntermediateData, as in ADK."""
    if isinstance(value, dict):
        return "<events>" if {"invocation_events", "invocationEvents"} & value.keys() else "<data>"
    return "<events>" if isinstance(value, InvocationEvents) else "<data>"


IntermediateDataRef = Annotated[
    Annotated[InvocationEvents, Tag("<events>")] | Annotated[IntermediateData, Tag("<data>")],
    Discriminator(_intermediate_tag),
]


class AgentDetails(AdkModel):
    """The instructions and tool declarations that an agent's model got first in a turn."""

    name: str
    instructions: str = ""
    tool_declarations: tuple[Any, ...] = ()


class AppDetails(AdkModel):
    """The agents that took part in a turn, by name."""

    agent_details: dict[str, AgentDetails] = Field(default_factory=dict)


class RubricContent(AdkModel):
    """The text of a rubric."""

    text_property: str | None = None


class Rubric(AdkModel):
    """A statement that a judge confirms or denies. ``type``: the kind of criterion that uses it."""

    rubric_id: str
    rubric_content: RubricContent
    description: str | None = None
    type: str | None = None


class Span(Frozen):
    """The time of a model's call (``name``: the agent's), of a tool's call, or of a wait for the model's rate limit.

    ``start``: seconds since the turn began. Tokens are None if the model did not report them.
    """

    kind: Literal["model", "tool", "wait"]
    name: str = ""
    start: float
    seconds: float
    input_tokens: int | None = None
    output_tokens: int | None = None


class Invocation(AdkModel):
    """A turn: the expected one of an eval file, or an actual one of an agent.

    Durations are in seconds, None if not measured. ``spans``: in the order in which they ended. ``inner_events``: of
    agents that were called as tools, which ADK's own record of a turn lacks. ``uncaptured``: why arguments of tool
    calls are unknown; ``unseen``: why calls and other events may be missing; both "" if nothing is.
    ``raw_events``: if the turn replayed recorded answers, all its events as google-adk writes them.
    """

    invocation_id: str = ""
    user_content: Content
    final_response: Content | None = None
    intermediate_data: IntermediateDataRef | None = None
    rubrics: tuple[Rubric, ...] | None = None
    app_details: AppDetails | None = None
    creation_timestamp: float = 0.0
    duration: float | None = None
    model_duration: float | None = None
    tool_duration: float | None = None
    spans: tuple[Span, ...] = Field(default=(), exclude_if=lambda spans: not spans)
    inner_events: tuple[InnerEvent, ...] = Field(default=(), exclude_if=lambda events: not events)
    uncaptured: str = Field(default="", exclude_if=lambda why: not why)
    unseen: str = Field(default="", exclude_if=lambda why: not why)
    raw_events: tuple[JsonObject, ...] | None = Field(default=None, exclude_if=lambda events: events is None)

    @property
    def events(self) -> tuple[InvocationEvent, ...]:
        """The events of the turn in order; () for a hand-written turn."""
        data = self.intermediate_data
        return data.invocation_events if isinstance(data, InvocationEvents) else ()

    def tool_calls(self) -> tuple[FunctionCall, ...]:
        """Return all function calls of the turn in order, including those like ``transfer_to_agent``."""
        if isinstance(self.intermediate_data, IntermediateData):
            return self.intermediate_data.tool_uses
        return tuple([part.function_call for event in self.events for part in event.parts if part.function_call])

    def tool_responses(self) -> tuple[FunctionResponse, ...]:
        """Return all function responses of the turn in order."""
        if isinstance(self.intermediate_data, IntermediateData):
            return self.intermediate_data.tool_responses
        return tuple(p.function_response for event in self.events for p in event.parts if p.function_response)

    def all_events(self) -> Iterator[InvocationEvent]:
        """Yield the events of the turn, each followed by those of agents that it called as tools, at any depth."""
        inner: dict[str | None, list[InnerEvent]] = {}
        for event in self.inner_events:
            inner.setdefault(event.within, []).append(event)

        def expand(events: Iterable[InvocationEvent]) -> Iterator[InvocationEvent]:
            for event in events:
                yield event
                for call in event.function_calls():
                    yield from expand(inner.pop(call.id, ()))

        yield from expand(self.events)
        while inner:  # events of unknown calls
            yield from expand(inner.pop(next(iter(inner))))

    def all_tool_calls(self) -> tuple[FunctionCall, ...]:
        """Return ``tool_calls``, and the calls of agents that were called as tools."""
        if not self.inner_events:
            return self.tool_calls()
        return tuple(call for event in self.all_events() for call in event.function_calls())

    @property
    def response_text(self) -> str:
        """The text of the final response; "" without one."""
        return self.final_response.text if self.final_response else ""

    @property
    def answers_without_text(self) -> bool:
        """Whether the final response has no text, but a tool call, code or media instead."""
        if self.response_text.strip():
            return False
        final = self.final_response.parts or () if self.final_response else ()
        return bool(self.tool_calls()) or any(part.is_other_than_text for part in final)


class SessionInput(AdkModel):
    """The initial session of a case."""

    model_config = ConfigDict(extra="allow")

    app_name: str
    user_id: str
    session_id: str | None = None
    state: JsonObject = Field(default_factory=dict)


class ConversationScenario(AdkModel):
    """The instructions for a simulated user."""

    starting_prompt: str
    conversation_plan: str
    user_persona: PersonaRef | None = None


class EvalCase(AdkModel):
    """A case: a fixed conversation, or a scenario with a simulated user. Unknown keys are kept."""

    model_config = ConfigDict(extra="allow")

    eval_id: str
    conversation: tuple[Invocation, ...] | None = None
    conversation_scenario: ConversationScenario | None = None
    session_input: SessionInput | None = None
    creation_timestamp: float = 0.0
    rubrics: tuple[Rubric, ...] | None = None
    final_session_state: JsonObject | None = Field(default_factory=dict)

    _line: int | None = PrivateAttr(default=None)

    @property
    def line(self) -> int | None:
        """The line of the case in its file, from 1; None if unknown."""
        return self._line

    def at_line(self, line: int | None) -> Self:
        """Set the line and return the case itself."""
        self._line = line
        return self

    def __eq__(self, other: object) -> bool:
        """Compare the content, without the line in the file."""
        if not isinstance(other, EvalCase):
            return NotImplemented
        return self.__dict__ == other.__dict__ and (self.model_extra or {}) == (other.model_extra or {})

    __hash__ = None  # type: ignore[assignment]  # holds dicts

    @property
    def turns(self) -> tuple[Invocation, ...]:
        """The expected turns; () for a scenario."""
        return self.conversation or ()


class PastEvent(InvocationEvent):
    """An event before the first turn, with its changes to the session's state."""

    state_delta: JsonObject | None = None


class DatasetCase(EvalCase):
    """A case of an evaluation dataset, which may contain the beginning of its session, or all of it.

    ``history``: the events of the session before the first turn. ``recorded``: the actual turns, which are then scored
    without running an agent. ``metric_fields``: the dataset's further fields, which metrics read.
    """

    history: tuple[PastEvent, ...] = ()
    recorded: tuple[Invocation, ...] = ()
    metric_fields: JsonObject = Field(default_factory=dict)


class Replay(Frozen):
    """A conversation recorded by google-adk: the models' answers, and the ``expected`` events of each turn.

    Of `adk test`: ``answers`` are the models' contents in order, ``call_ids`` the ids of the recorded calls, to which
    messages of the user may refer, and ``mocks`` the random numbers that were drawn. Of `adk conformance`:
    ``recordings`` is the text of the file that google-adk replays itself, ``streamed`` whether the run was, and
    ``state_deltas`` the changes of the state by each message.
    """

    kind: Literal["test", "conformance"]
    expected: tuple[tuple[JsonObject, ...], ...]
    answers: tuple[JsonObject, ...] = ()
    call_ids: tuple[str, ...] = ()
    mocks: JsonObject = Field(default_factory=dict)
    recordings: str = ""
    streamed: bool = False
    state_deltas: tuple[JsonObject, ...] = ()


class ReplayCase(EvalCase):
    """A case that replays the models' recorded answers, without calling a model."""

    replay: Replay


class EvalSet(AdkModel):
    """The cases of one file."""

    model_config = ConfigDict(extra="ignore", alias_generator=None)

    eval_set_id: str
    name: str | None = None
    description: str | None = None
    eval_cases: tuple[SerializeAsAny[EvalCase], ...]
    creation_timestamp: float = 0.0
