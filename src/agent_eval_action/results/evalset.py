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
"""Ends of the names by which eval files are found in a folder; a file that is named may have any JSON or YAML name."""

FIXTURES: Final = "tests"
"""The folder in an agent's in which `adk test` looks for recorded sessions."""
CONFORMANCE_SPEC: Final = "spec.yaml"
"""The file that makes a folder a test of `adk conformance`."""


def is_replayed(path: Path) -> bool:
    """Whether an eval file of this place and name is a recording whose models' answers are replayed."""
    return path.name == CONFORMANCE_SPEC or (path.parent.name == FIXTURES and not path.name.endswith(EVAL_SUFFIXES))


class ColumnMapping(Frozen):
    """Which columns of a table hold what: names, or paths like ``inputs.question`` into a column of objects.

    What is not given is found by its usual names. ``metadata``: what metrics read beside; None: every other column.
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
        """The columns that have a role, other than to be metadata."""
        return tuple(name for role, name in self if role != "metadata" and name is not None)


class PersonaBehavior(Frozen):
    """One behaviour of a persona, with the rubrics that tell when it is violated. snake_case only, as in ADK."""

    model_config = ConfigDict(extra="ignore")  # as in ADK

    name: str
    description: str
    behavior_instructions: tuple[str, ...]
    violation_rubrics: tuple[str, ...]


class Persona(Frozen):
    """A custom persona; the ids EXPERT, NOVICE and EVALUATOR name built-in ones."""

    model_config = ConfigDict(extra="ignore")  # as in ADK

    id: str
    description: str
    behaviors: tuple[PersonaBehavior, ...]


def _kind(value: Any) -> str:
    return "<persona id>" if isinstance(value, str) else "<persona>"


PersonaRef = Annotated[
    Annotated[str, Tag("<persona id>")] | Annotated[Persona, Tag("<persona>")],
    Discriminator(_kind),
]


@cache
def _persona_file() -> dict[str, Any]:
    import yaml  # noqa: PLC0415 - only simulated users need it

    content: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("personas.yaml").read_text("utf-8"))
    return content


def personas_version() -> str:
    """The version of the built-in behaviours: scores judged by other behaviours do not compare."""
    return str(_persona_file()["version"])


def default_behaviors() -> tuple[PersonaBehavior, ...]:
    """The behaviours of a simulated user without a persona."""
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
    """Replace every ``{{ name }}`` by its value in one pass, so that a value is never read as a placeholder.

    A placeholder without a value stays as it is.
    """
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: values.get(match[1], match[0]), text)


@dataclass(frozen=True, slots=True)
class FunctionReply:
    """What a metric function gave back, as JSON, or why it gave nothing (one sentence, and its traceback)."""

    value: Any = None
    error: str = ""
    traceback: str = ""


AnnotationLevel = Literal["error", "warning", "notice"]


class Annotation(Frozen):
    """``path`` is relative to the workspace, "" for what concerns no file; ``line`` counts from 1."""

    level: AnnotationLevel
    message: str
    title: str = ""
    path: str = ""
    line: int | None = None


JsonObject = dict[str, Any]


class FunctionCall(AdkModel):
    """A call the model asked for. ``args`` None and {} are equal for us (ADK tells them apart).

    google-genai's rarer fields are kept as extras, in snake_case; eval files are held to its names by ``formats``.
    """

    model_config = ConfigDict(extra="allow")

    id: str | None = None
    name: str | None = None
    args: JsonObject | None = None


class FunctionResponse(AdkModel):
    """What a tool answered."""

    model_config = ConfigDict(extra="allow")

    id: str | None = None
    name: str | None = None
    response: JsonObject | None = None


_CODE = ("executable_code", "code_execution_result")


class Part(AdkModel):
    """One part of a content. Media and the rarer kinds stay in their wire form (dicts, snake_case extras)."""

    model_config = ConfigDict(extra="allow")

    text: str | None = None
    thought: bool | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None
    inline_data: JsonObject | None = None
    file_data: JsonObject | None = None

    @property
    def is_other_than_text(self) -> bool:
        """Whether it holds a call, a result, media or code. Signatures of thoughts are none of these."""
        known = (self.function_call, self.function_response, self.inline_data, self.file_data)
        extra = self.model_extra or {}
        return any(value is not None for value in (*known, *(extra.get(name) for name in _CODE)))


class Content(AdkModel):
    """A message: role and parts."""

    parts: tuple[Part, ...] | None = None
    role: str | None = None

    @property
    def text(self) -> str:
        """The non-empty text parts joined by newlines, thoughts left out (a difference from ADK)."""
        texts = [part.text for part in self.parts or () if part.text and not part.thought]
        return texts[0] if len(texts) == 1 else "\n".join(texts)


class IntermediateData(AdkModel):
    """Tool use and intermediate answers as hand-written eval files give them."""

    tool_uses: tuple[FunctionCall, ...] = ()
    tool_responses: tuple[FunctionResponse, ...] = ()
    intermediate_responses: tuple[tuple[str, tuple[Part, ...]], ...] = ()


class InvocationEvent(LenientModel):
    """One event of a turn as recorded. ADK ignores extra keys here; so do we."""

    author: str
    content: Content | None = None
    grounding_metadata: JsonObject | None = None
    usage_metadata: JsonObject | None = None
    model_version: str | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of its content."""
        return (self.content.parts or ()) if self.content else ()

    @property
    def is_model_call(self) -> bool:
        """Whether a model made the event: it has usage or a model version."""
        return self.usage_metadata is not None or self.model_version is not None

    def function_calls(self) -> list[FunctionCall]:
        """The calls of the event."""
        return [part.function_call for part in self.parts if part.function_call]


class InnerEvent(InvocationEvent):
    """An event of an agent that another one called as a tool (ADK's AgentTool). ``within``: the id of that call."""

    within: str | None = None


class InvocationEvents(AdkModel):
    """The events of a recorded turn, in order."""

    invocation_events: tuple[InvocationEvent, ...] = ()


def _intermediate_kind(value: Any) -> str:
    """Which shape is meant, so that errors speak of that one alone. ``{}`` is IntermediateData, as in ADK."""
    if isinstance(value, dict):
        return "<events>" if {"invocation_events", "invocationEvents"} & value.keys() else "<data>"
    return "<events>" if isinstance(value, InvocationEvents) else "<data>"


IntermediateDataRef = Annotated[
    Annotated[InvocationEvents, Tag("<events>")] | Annotated[IntermediateData, Tag("<data>")],
    Discriminator(_intermediate_kind),
]


class AgentDetails(AdkModel):
    """Instruction and tool declarations of one agent as its model first got them in a turn."""

    name: str
    instructions: str = ""
    tool_declarations: tuple[Any, ...] = ()


class AppDetails(AdkModel):
    """Agents that took part in a turn, by name."""

    agent_details: dict[str, AgentDetails] = Field(default_factory=dict)


class RubricContent(AdkModel):
    """The text of a rubric."""

    text_property: str | None = None


class Rubric(AdkModel):
    """A yes/no statement a judge decides on. ``type`` says which criterion it belongs to."""

    rubric_id: str
    rubric_content: RubricContent
    description: str | None = None
    type: str | None = None


class Span(Frozen):
    """A call of a model (``name``: of which agent) or of a tool, or a wait for the model's rate.

    ``start`` and ``seconds`` are seconds of the turn. Tokens are None where the model did not report them.
    """

    kind: Literal["model", "tool", "wait"]
    name: str = ""
    start: float
    seconds: float
    input_tokens: int | None = None
    output_tokens: int | None = None


class Invocation(AdkModel):
    """One turn: expected when it comes from an eval file, actual when an agent made it.

    Durations are seconds; None means not measured, never zero. ``spans`` are in the order in which they ended.
    ``inner_events`` are of agents that others called as tools, which ADK's own record of a turn has not.
    ``uncaptured`` is why arguments of its tool calls are not known, ``unseen`` why calls and other events may be
    missing altogether; "" where they are known.
    ``raw_events``: every event of a turn that replayed recorded answers, with all that google-adk says of it.
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
        """The events of the turn in order; none of a turn that was written by hand."""
        data = self.intermediate_data
        return data.invocation_events if isinstance(data, InvocationEvents) else ()

    def tool_calls(self) -> tuple[FunctionCall, ...]:
        """Every function call of the turn in order, ``transfer_to_agent`` and the like included."""
        if isinstance(self.intermediate_data, IntermediateData):
            return self.intermediate_data.tool_uses
        return tuple([part.function_call for event in self.events for part in event.parts if part.function_call])

    def tool_responses(self) -> tuple[FunctionResponse, ...]:
        """Every function response of the turn in order."""
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
        while inner:  # of calls that are not known
            yield from expand(inner.pop(next(iter(inner))))

    def all_tool_calls(self) -> tuple[FunctionCall, ...]:
        """``tool_calls``, and those of agents that were called as tools."""
        if not self.inner_events:
            return self.tool_calls()
        return tuple(call for event in self.all_events() for call in event.function_calls())

    @property
    def response_text(self) -> str:
        """Text of the final response; "" when there is none."""
        return self.final_response.text if self.final_response else ""

    @property
    def answers_without_text(self) -> bool:
        """Whether the final response has no text because a tool, code or media answered in its place."""
        if self.response_text.strip():
            return False
        final = self.final_response.parts or () if self.final_response else ()
        return bool(self.tool_calls()) or any(part.is_other_than_text for part in final)


class SessionInput(AdkModel):
    """How the session of a case begins."""

    model_config = ConfigDict(extra="allow")

    app_name: str
    user_id: str
    session_id: str | None = None
    state: JsonObject = Field(default_factory=dict)


class ConversationScenario(AdkModel):
    """A case whose user is simulated."""

    starting_prompt: str
    conversation_plan: str
    user_persona: PersonaRef | None = None


class EvalCase(AdkModel):
    """One case: a fixed conversation or a scenario. Unknown keys are kept."""

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
        """1-based line of the case in its file, where the loader knew it."""
        return self._line

    def at_line(self, line: int | None) -> Self:
        """A copy that knows its file and line."""
        self._line = line
        return self

    def __eq__(self, other: object) -> bool:
        """Equal by content; the position in the file does not count."""
        if not isinstance(other, EvalCase):
            return NotImplemented
        return self.__dict__ == other.__dict__ and (self.model_extra or {}) == (other.model_extra or {})

    __hash__ = None  # type: ignore[assignment]  # holds dicts

    @property
    def turns(self) -> tuple[Invocation, ...]:
        """The expected turns; none for a scenario."""
        return self.conversation or ()


class PastEvent(InvocationEvent):
    """An event of before the first turn, with what it changed in the session's state."""

    state_delta: JsonObject | None = None


class DatasetCase(EvalCase):
    """A case of an evaluation dataset, which can begin or be over before the agent is asked.

    ``history``: events that the session holds before the first turn. ``recorded``: the turns as they were made, so
    that they are scored and no agent is asked. ``metric_fields``: what metrics read beside the conversation, under the
    dataset's names.
    """

    history: tuple[PastEvent, ...] = ()
    recorded: tuple[Invocation, ...] = ()
    metric_fields: JsonObject = Field(default_factory=dict)


class Replay(Frozen):
    """What google-adk recorded of a conversation: what models answered, and the events of each turn.

    Of `adk test`: ``answers`` are contents in the order in which models gave them, ``call_ids`` those of the recorded
    calls, which messages of the user may answer, and ``mocks`` the random numbers that were drawn. Of
    `adk conformance`: ``recordings`` is the text of the file that google-adk replays itself, of a ``streamed`` run or
    not, and ``state_deltas`` are what each message changes in the state.
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
    """A case in which models answer what they answered when it was recorded, and no model is asked."""

    replay: Replay


class EvalSet(AdkModel):
    """The cases of one file."""

    model_config = ConfigDict(extra="ignore", alias_generator=None)

    eval_set_id: str
    name: str | None = None
    description: str | None = None
    eval_cases: tuple[SerializeAsAny[EvalCase], ...]
    creation_timestamp: float = 0.0

    _path: Path | None = PrivateAttr(default=None)

    @property
    def path(self) -> Path | None:
        """The file the set came from."""
        return self._path

    def from_path(self, path: Path | None) -> Self:
        """A copy that knows its file."""
        self._path = path
        return self

    def __eq__(self, other: object) -> bool:
        """Equal by content; the file does not count."""
        return self.__dict__ == other.__dict__ if isinstance(other, EvalSet) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # holds dicts
