"""The ``command`` driver: a program in any language that reads each turn as a line of JSON and answers with one.

A request has the fields of ADK-Rust's protocol plus our own, so programs written for either work without an option. A
program makes one turn at a time and belongs to its session until that is closed; concurrent sessions use more programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from agent_eval_action.agents.adk import runtime_spec
from agent_eval_action.agents.base import AgentSession, DriverContext, SessionEnd, SessionRequest
from agent_eval_action.agents.chat_messages import (
    Message,
    TurnMessages,
    as_text,
    as_tool_call,
    gemini_usage,
    history_messages,
    message_text,
    messages_since,
    tool_calls,
    user_message,
)
from agent_eval_action.agents.dataset_command import PLACEHOLDERS, DatasetCommandAgent, command_conditions
from agent_eval_action.agents.turn_traces import TracedSession, TurnTraces
from agent_eval_action.errors import ConfigError
from agent_eval_action.llm.client import quoted, sendable_json
from agent_eval_action.processes.agent_service import Program, begin_program, program_log
from agent_eval_action.processes.process import OutputLog
from agent_eval_action.results.evalset import Content, Invocation
from agent_eval_action.results.run_result import AgentConditions, AttemptError, ErrorKind

_MOST_PROGRAMS: Final = 16
_POLL_S: Final = 0.2
_SHOWN: Final = 200
_ANSWER_KEYS: Final = frozenset({"text", "tool_calls", "messages", "error"})
_REPORTED_KINDS: Final = (ErrorKind.RATE_LIMITED, ErrorKind.UNAVAILABLE)


@dataclass(eq=False)
class LineProgram:
    """A program that answers each line with a line. Its other output goes to the log.

    ``source`` is its name for the receiver of spans. ``skipped`` ends an error message: the first output that was no
    answer.
    """

    source: str
    _program: Program
    _log: OutputLog
    _lines: asyncio.StreamReader
    _reading: asyncio.BaseTransport
    _writer: asyncio.StreamWriter
    skipped: str = ""

    @classmethod
    async def connect(cls, program: Program, log: OutputLog, limit: int, source: str) -> LineProgram:
        """Attach the program's pipes to the event loop. A line may have ``limit`` bytes."""
        loop, lines = asyncio.get_running_loop(), asyncio.StreamReader(limit)
        reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), program.process.stdout)
        writing, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, program.process.stdin)
        program.process.stdin = program.process.stdout = None  # the transports close them
        return cls(source, program, log, lines, reading, asyncio.StreamWriter(writing, protocol, None, loop))

    @property
    def has_ended(self) -> bool:
        return self._program.has_ended

    async def ask(self, request: Mapping[str, Any]) -> dict[str, Any] | AttemptError:
        """Send a request; return the answer or an error. After a cancellation the program must not be used again."""
        self.skipped = ""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0):  # a line that is already there answers no request
                    if await self._answer({}) is not None:
                        message = "the program answered more than once: its answers cannot be told apart"
                        return AttemptError(kind=ErrorKind.PROTOCOL, message=message)
            self._writer.write(json.dumps(sendable_json(request), ensure_ascii=False).encode() + b"\n")
            await self._writer.drain()
            answer = await self._answer_while_running(request)
        except ConnectionError:
            answer = None
        except ValueError:
            message = "the program printed a line that is larger than an answer may be"
            return AttemptError(kind=ErrorKind.OUTPUT, message=message)
        return answer if answer is not None else await self._why_ended()

    async def _answer_while_running(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer, or None if the program ends first: its children may keep the pipe open."""
        reading = asyncio.ensure_future(self._answer(request))
        try:
            while not (await asyncio.wait({reading}, timeout=_POLL_S))[0]:
                if self.has_ended:
                    await asyncio.wait({reading}, timeout=_POLL_S)
                    break
            return reading.result() if reading.done() else None
        finally:
            reading.cancel()

    async def _answer(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the next answer, or None at the end of the output. Raises ValueError for a line over the limit."""
        while line := await self._lines.readline():
            if (answer := _read_answer(line, request)) is not None:
                return answer
            shown = quoted(line[:_SHOWN].decode("utf-8", "replace").strip(), limit=_SHOWN)
            self.skipped = self.skipped or (f"; it printed what is no answer: {shown}" if shown else "")
            self._log.write(line if line.endswith(b"\n") else line + b"\n")
        return None

    async def _why_ended(self) -> AttemptError:
        kind, message = ErrorKind.PROTOCOL, "the program closed its standard input or output"
        if await self._program.ends_now():
            kind, message = ErrorKind.DIED, f"the program {self._program.end_description()} before it answered"
        return AttemptError(kind=kind, message=message + self.skipped, traceback=self._program.tail())

    async def stop(self, grace_s: float) -> None:
        """Stop the program and all its children. Closing standard input first tells it to exit."""
        if not self._writer.transport.is_closing():  # it closes itself when the program has ended
            self._writer.transport.abort()
        self._reading.close()
        await asyncio.sleep(0)  # the transports close their pipes in the next iteration of the loop
        await asyncio.to_thread(self._program.stop, grace_s)


def _read_answer(line: bytes, request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Parse a line; None if it is not an answer, or answers another request."""
    try:
        value = sendable_json(json.loads(line))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or all(value.get(key) is None for key in _ANSWER_KEYS):
        return None
    other = any(value.get(key) not in (None, request[key]) for key in ("session_id", "turn") if key in request)
    return None if other else value


class CommandAgent:
    """An ``AgentDriver``. Runs at most ``workers`` programs at a time, each for one session."""

    def __init__(self, context: DriverContext, words: tuple[str, ...]) -> None:
        self.spec = runtime_spec(context)
        self.traces = TurnTraces(context)
        self._words = words
        self._idle: list[LineProgram] = []
        self._running: set[LineProgram] = set()
        size = context.agent.workers or min(context.settings.concurrency, _MOST_PROGRAMS)
        self._slots = asyncio.Semaphore(size)
        self._log = program_log(self.spec)
        self._started = 0

    async def start(self) -> AgentConditions | AttemptError:
        """Start the first program, so that a broken command fails before any case runs."""
        await self.traces.start()
        program = await self._start_program()
        if isinstance(program, AttemptError):
            return program
        self._idle.append(program)
        return command_conditions(self.spec, self._words)

    async def open(self, request: SessionRequest) -> AgentSession | AttemptError:
        # Repeats of a case that pins its session id have the same id.
        alone = request.alone or request.session_id is not None
        await self._slots.acquire()
        program: LineProgram | AttemptError | None = None
        try:
            program = await self._take(alone=alone)
        finally:
            if not isinstance(program, LineProgram):
                self._slots.release()
        if isinstance(program, AttemptError):
            return program
        return CommandSession(self, program, request, usable=not alone)

    async def give_back(self, program: LineProgram, *, usable: bool) -> None:
        """Take a program back from its session, and stop it if it is no longer usable."""
        try:
            if usable and not program.has_ended:
                self._idle.append(program)
            else:
                await self._end(program)
        finally:
            self._slots.release()

    async def stop(self) -> None:
        self._idle.clear()
        await asyncio.gather(*(self._end(program) for program in tuple(self._running)), return_exceptions=True)
        await self.traces.stop()
        self._log.close()

    async def _take(self, *, alone: bool) -> LineProgram | AttemptError:
        while self._idle:
            program = self._idle.pop()
            if not alone and not program.has_ended:
                return program
            await self._end(program)
        return await self._start_program()

    async def _start_program(self) -> LineProgram | AttemptError:
        self._started += 1
        source = f"program-{self._started}"
        variables = self.traces.variables(source)
        started = await begin_program(self.spec, self._words, self._log, variables, pipes=True)
        if isinstance(started, AttemptError):
            return started
        program = await LineProgram.connect(started, self._log, self.spec.limits.turn_bytes, source)
        self._running.add(program)
        return program

    async def _end(self, program: LineProgram) -> None:
        await program.stop(self.spec.limits.stop_s)
        self._running.discard(program)


class CommandSession(TracedSession):
    """An ``AgentSession`` that has a program to itself until it is closed. ``usable``: by other sessions then."""

    def __init__(self, agent: CommandAgent, program: LineProgram, request: SessionRequest, *, usable: bool) -> None:
        super().__init__(agent.spec, agent.traces, program.source)
        self._agent = agent
        self._program: LineProgram | None = program
        self._usable = usable
        self._messages: list[Message] = list(history_messages(request.history))
        self._state = request.state_after_history()
        self._state_is_known = False
        self._names = {
            "case_id": request.key.case if request.key else None,
            "session_id": request.session_id or uuid4().hex,
            "user_id": request.user_id,
            "app_name": request.app_name,
        }

    async def make(self, content: Content, headers: Mapping[str, str]) -> Invocation | AttemptError:
        if (program := self._program) is None:
            return AttemptError(kind=ErrorKind.STOPPED, message="the session was closed")
        request = {
            **self._names,
            "turn": self.turns - 1,
            "user_text": content.text,
            "content": content.wire(),
            "messages": self._messages,
            "state": self._state,
            **headers,
        }
        usable, self._usable = self._usable, False  # the answer to an abandoned turn may still arrive
        try:
            async with asyncio.timeout(self.spec.timeout_s):
                answer = await program.ask(request)
        except TimeoutError:
            return self.took_too_long(program.skipped)
        if isinstance(answer, AttemptError):
            return answer
        self._usable = usable
        if answer.get("error"):
            return _reported_error(answer["error"])
        if problem := problem_of(answer):
            return AttemptError(kind=ErrorKind.OUTPUT, message=f"the program's answer is none: {problem}")
        turn = answer_messages(answer, content.text)
        if isinstance(answer.get("state"), dict):
            self._state_is_known = True
            self._state.update(answer["state"])
        self._messages = [*self._messages, user_message(content), *map(dict, turn.messages)]
        return turn.invocation(content, f"{self._names['session_id']}-{self.turns - 1}")

    async def close(self) -> SessionEnd | AttemptError:
        """Give the program back. The state is known only if an answer reported it."""
        program, self._program = self._program, None
        if program is not None:
            await self._agent.give_back(program, usable=self._usable)
        return SessionEnd(self._state if self._state_is_known else None)


def _reported_error(error: Any) -> AttemptError:
    """Convert an answer's ``error``: a text, or a mapping with ``message`` and optionally one of two kinds."""
    named = error if isinstance(error, dict) else {}
    reported = named.get("message") or error
    kind = next((kind for kind in _REPORTED_KINDS if named.get("kind") == kind.value), ErrorKind.EXCEPTION)
    return AttemptError(kind=kind, message=f"the program reports an error: {quoted(_written(reported))}")


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def problem_of(answer: Mapping[str, Any]) -> str:
    """Return what is wrong with an answer, or "". Skipping an invalid part could hide a tool call."""
    for name, what, is_valid in _FORMS:
        if answer.get(name) is not None and not is_valid(answer[name]):
            return f"`{name}` is no {what}"
    calls = tool_calls({"tool_calls": answer.get("tool_calls")})
    unnamed = next((number for number, call in enumerate(calls, 1) if not call.name), None)
    return f"`tool_calls` has no `name` in entry {unnamed}" if unnamed else ""


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


_FORMS: Final[tuple[tuple[str, str, Callable[[Any], bool]], ...]] = (
    ("text", "text", lambda value: isinstance(value, str)),
    ("messages", "list of objects", _is_list_of_objects),
    ("state", "object", lambda value: isinstance(value, dict)),
    ("tool_calls", "list of objects", _is_list_of_objects),
)


def answer_messages(answer: Mapping[str, Any], asked: str) -> TurnMessages:
    """Return the messages of an answer. Its ``tool_calls`` come first, unless the messages have calls."""
    messages = messages_since(asked, answer.get("messages") or ())
    if not any(map(tool_calls, messages)):
        messages = [*_call_messages(answer.get("tool_calls") or ()), *messages]
    text, last = answer.get("text"), messages[-1] if messages else {}
    if text and (last.get("role") != "assistant" or message_text(last.get("content")) != text):
        messages.append({"role": "assistant", "content": text})
    author, model = as_text(answer.get("author")) or "agent", as_text(answer.get("model"))
    return TurnMessages(messages, author, model, gemini_usage(answer.get("usage")))


def _call_messages(listed: Iterable[Message]) -> list[Message]:
    entries = [dict(entry) for entry in listed]
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry.get("id"), str):
            entry["id"] = f"call_{uuid4().hex[:8]}_{number}"
    calls = [as_tool_call(call, str(call.id)) for call in tool_calls({"tool_calls": entries})]
    results = [
        {"role": "tool", "tool_call_id": entry["id"], "content": _written(entry["result"])}
        for entry in entries
        if "result" in entry
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results] if calls else []


def make_command_agent(context: DriverContext) -> CommandAgent | DatasetCommandAgent:
    """Return the driver of a configured agent: that of datasets if the command has its placeholders.

    Raises ConfigError if it lacks one of them.
    """
    agent, words = context.agent, tuple(context.agent.command or ())
    missing = [placeholder for placeholder in PLACEHOLDERS if not any(placeholder in word for word in words)]
    if not missing:
        return DatasetCommandAgent(context, words)
    if len(missing) < len(PLACEHOLDERS):
        hint = "for example `command: python extension.py --dataset {dataset} --output {output}`"
        raise ConfigError(f"the command of the agent {agent.name} lacks {missing[0]}", hint)
    return CommandAgent(context, words)
