"""The ``command`` driver: a program in any language that answers lines of JSON, or whole datasets.

A line is a turn. A request has the fields of ADK-Rust's protocol plus our own, so programs written for either work
without an option. A program makes one turn at a time and belongs to its session until that is closed; concurrent
sessions use more programs.

Datasets are the contract of agents-cli's extensions, ``--dataset FILE --output FILE``: a program gets the waiting cases
as an EvaluationDataset and writes one back with the complete ``agent_data`` of each case. A case that it leaves out has
no answer, whatever the exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from agent_eval_action.agents.adk import runtime_spec
from agent_eval_action.agents.base import AgentSession, DriverContext, SessionEnd, SessionRequest, TurnDone
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
from agent_eval_action.agents.turn_traces import TracedSession, TurnTraces
from agent_eval_action.diagnostics.reader import Source, plural, read_bytes
from agent_eval_action.diagnostics.suggestions import free_name
from agent_eval_action.environments.runtime import AgentRuntimeSpec
from agent_eval_action.environments.variables import with_advice
from agent_eval_action.errors import AgentEnvironmentError, ConfigError, EvalFileError, Unreadable
from agent_eval_action.folders import relative
from agent_eval_action.formats.agents_cli import AGENTS_CLI
from agent_eval_action.formats.base import Reading
from agent_eval_action.llm.client import quoted, sendable_json
from agent_eval_action.processes.agent_service import Program, begin_program, program_log, shown_command, start_failure
from agent_eval_action.processes.process import OutputLog
from agent_eval_action.results.evalset import Content, DatasetCase, Invocation, JsonObject
from agent_eval_action.results.run_result import AgentConditions, AttemptError, ErrorKind

_PLACEHOLDERS: Final = ("{dataset}", "{output}")
"""Placeholders in a command for the paths of the two files."""

_GATHER_S: Final = 0.2  # puts cases that begin together into one dataset
_MOST_PROGRAMS: Final = 16
_POLL_S: Final = 0.2
_SHOWN: Final = 200
_ANSWER_KEYS: Final = frozenset({"text", "tool_calls", "messages", "error"})
_REPORTED_KINDS: Final = (ErrorKind.RATE_LIMITED, ErrorKind.UNAVAILABLE)


def _conditions(spec: AgentRuntimeSpec, words: Sequence[str]) -> AgentConditions:
    """Return what is known of the environment of an agent that a command starts."""
    path = relative(spec.path.resolve(), spec.workspace.resolve())
    return AgentConditions(agent=spec.name, path=path, environment=shown_command(words))


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
        return _conditions(self.spec, self._words)

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


@dataclass(eq=False)
class _PendingTurn:
    """A turn that waits for its answer. ``case`` gets its id later, unique in the dataset."""

    name: str
    case: JsonObject
    alone: bool
    answer: asyncio.Future[JsonObject | AttemptError]

    def settle(self, answer: JsonObject | AttemptError) -> None:
        """Set the answer, unless there is one or the waiting turn was cancelled."""
        if not self.answer.done():
            self.answer.set_result(answer)


class DatasetCommandAgent:
    """An ``AgentDriver``. Runs one program at a time, for as many waiting turns as sessions run at once."""

    def __init__(self, context: DriverContext, words: tuple[str, ...]) -> None:
        self.spec = runtime_spec(context)
        self._words = words
        self._size = context.settings.concurrency
        self._waiting: list[_PendingTurn] = []
        self._runner: asyncio.Task[None] | None = None
        self._log = program_log(self.spec)

    async def start(self) -> AgentConditions | AttemptError:
        """Start nothing: a program runs once there is a dataset."""
        return _conditions(self.spec, self._words)

    async def open(self, request: SessionRequest) -> AgentSession | AttemptError:
        return DatasetSession(self, request)

    async def stop(self) -> None:
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        self._give_up(self._waiting)  # if the runner was cancelled before it began
        self._log.close()

    async def ask(self, name: str, case: JsonObject, *, alone: bool) -> JsonObject | AttemptError:
        """Return the case with the program's answer, or an error. May be cancelled."""
        pending = _PendingTurn(name, case, alone, asyncio.get_running_loop().create_future())
        self._waiting.append(pending)
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run_all())
        try:
            return await pending.answer
        finally:
            if pending in self._waiting:
                self._waiting.remove(pending)

    async def _run_all(self) -> None:
        """Run programs until no turn waits. However this ends, every turn gets an answer or an error."""
        batch: list[_PendingTurn] = []
        try:
            while self._waiting:
                await asyncio.sleep(_GATHER_S)
                alone = [pending for pending in self._waiting if pending.alone]
                batch = alone[:1] or self._waiting[: self._size]
                self._waiting = [pending for pending in self._waiting if pending not in batch]
                for pending, answer in zip(batch, await self._run(batch), strict=True):
                    pending.settle(answer)
        finally:
            self._give_up((*batch, *self._waiting))

    @staticmethod
    def _give_up(waiting: Sequence[_PendingTurn]) -> None:
        for pending in waiting:
            pending.settle(AttemptError(kind=ErrorKind.STOPPED, message="the run was stopped"))

    async def _run(self, batch: Sequence[_PendingTurn]) -> Sequence[JsonObject | AttemptError]:
        ids: list[str] = []  # a dataset holds all repeats of a case
        for pending in batch:
            ids.append(free_name(pending.name, ids))
        cases = [{"eval_case_id": name, **pending.case} for name, pending in zip(ids, batch, strict=True)]
        try:
            folder = await asyncio.to_thread(_make_folder, self.spec, {"eval_cases": cases})
        except (AgentEnvironmentError, OSError) as error:
            return [start_failure(error, self._words)] * len(batch)
        try:
            answered: dict[str, JsonObject] | AttemptError | None = await self._run_program(folder, batch)
            if answered is None:
                answered = await asyncio.to_thread(_read_answers, folder / "out", self.spec.limits.turn_bytes)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        if isinstance(answered, AttemptError):
            return [answered] * len(batch)
        lost = AttemptError(kind=ErrorKind.EXCEPTION, message="the program left the case out of what it wrote")
        return [answered.get(name, lost) for name in ids]

    async def _run_program(self, folder: Path, batch: Sequence[_PendingTurn]) -> AttemptError | None:
        """Run a program to its end; return an error if its output must not be used."""
        dataset, output = str(folder / "dataset.json"), str(folder / "out" / "answers.json")
        words = [word.replace(_PLACEHOLDERS[0], dataset).replace(_PLACEHOLDERS[1], output) for word in self._words]
        program = await begin_program(self.spec, words, self._log)
        if isinstance(program, AttemptError):
            return program
        ended = asyncio.ensure_future(asyncio.to_thread(program.process.wait))
        given_up = asyncio.ensure_future(asyncio.wait([pending.answer for pending in batch]))
        try:
            limit_s = self.spec.timeout_s * len(batch)
            await asyncio.wait({ended, given_up}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return await _why_failed(program)
            what = f"the program took longer than timeout_s ({self.spec.timeout_s:g} s) for each of"
            return AttemptError(kind=ErrorKind.TIMEOUT, message=f"{what} {plural(len(batch), 'case')}")
        finally:
            given_up.cancel()
            await asyncio.shield(asyncio.to_thread(program.stop, self.spec.limits.stop_s))
            await ended


async def _why_failed(program: Program) -> AttemptError | None:
    if await program.ends_now() and program.process.returncode == 0:
        return None
    message = f"the program {program.end_description()}"
    return AttemptError(kind=ErrorKind.DIED, message=message, traceback=program.tail())


def _make_folder(spec: AgentRuntimeSpec, dataset: JsonObject) -> Path:
    """Create a folder with the dataset, which only we can change, and a folder for answers, which the agent owns."""
    place = spec.locate()
    user = place.user
    folder = Path(tempfile.mkdtemp(prefix="dataset-", dir=place.sandbox.owner.root if place.sandbox else None))
    written = json.dumps(sendable_json(dataset), ensure_ascii=False)
    (folder / "dataset.json").write_text(written, encoding="utf-8")
    (folder / "out").mkdir(mode=0o700)
    if user is not None:
        folder.chmod(0o711)
        (folder / "dataset.json").chmod(0o644)
        os.chown(folder / "out", user.uid, user.uid)
    return folder


def _read_answers(folder: Path, limit: int) -> dict[str, JsonObject] | AttemptError:
    """Return the cases that the program wrote, by id. The folder may hold anything, including links."""
    path = folder / "answers.json"
    try:
        value = sendable_json(json.loads(read_bytes(path, folder, limit)))
    except Unreadable as error:
        return _no_answers(f"the program wrote no dataset to its --output: it {error.problem.message}")
    except (ValueError, RecursionError):
        return _no_answers("what the program wrote to its --output is no JSON")
    cases = value.get("eval_cases", value.get("evalCases")) if isinstance(value, dict) else None
    if not isinstance(cases, list):
        return _no_answers("what the program wrote to its --output is no dataset: it has no `eval_cases`")
    given = [case for case in cases if isinstance(case, dict)]
    ids = [str(case.get("eval_case_id", case.get("evalCaseId"))) for case in given]
    if len(set(ids)) < len(ids):
        return _no_answers("the program answered a case more than once: its answers cannot be told apart")
    return dict(zip(ids, given, strict=True))


def _no_answers(message: str) -> AttemptError:
    return AttemptError(kind=ErrorKind.PROTOCOL, message=message)


class DatasetSession:
    """An ``AgentSession``. Each turn is a case that contains the turns before it."""

    def __init__(self, agent: DatasetCommandAgent, request: SessionRequest) -> None:
        self._agent = agent
        self._request = request
        self._events: list[JsonObject] = [event.wire() for event in request.history]
        self._turns = 0

    async def turn(self, content: Content) -> TurnDone | AttemptError:
        number, self._turns = self._turns, self._turns + 1
        message = content.wire()
        user_event: JsonObject = {"author": "user", "content": message}
        if not number and self._request.state:
            user_event["state_delta"] = self._request.state
        events = [*self._events, user_event]
        begins_anew = len(events) == 1 and "state_delta" not in user_event
        turn = {"turn_index": 0, "turn_id": "turn_0", "events": events}
        case = {"prompt": message} if begins_anew else {"agent_data": {"turns": [turn]}}
        key, started = self._request.key, time.time()
        answered = await self._agent.ask(key.case if key else "case", case, alone=self._request.alone)
        made = answered if isinstance(answered, AttemptError) else _last_turn(answered, content)
        if isinstance(made, AttemptError):
            return with_advice(made.model_copy(update={"turn": number}), self._agent.spec)
        done, made_events = made
        self._events = made_events if made_events[0].get("author") == "user" else [user_event, *made_events]
        return TurnDone(done.model_copy(update={"creation_timestamp": started}))

    async def close(self) -> SessionEnd | AttemptError:
        """Return no state: a dataset does not hold it."""
        return SessionEnd(None)


def _last_turn(case: JsonObject, content: Content) -> tuple[Invocation, list[JsonObject]] | AttemptError:
    """Return the turn that the program made, parsed as a trace of agents-cli, and all events of the case."""
    reading = Reading(Source(Path("answers.json"), "", {"eval_cases": [case]}, lambda _: None), "answers")
    try:
        found = AGENTS_CLI.read(reading)
    except EvalFileError as error:
        reading.errors += error.problems
        found = None
    except RecursionError:
        return _no_answers("what the program wrote of the case is nested too deeply")
    if found is None:
        why = reading.errors[0].message if reading.errors else "it cannot be read"
        return _no_answers(f"what the program wrote of the case is no trace: {why}")
    (read,) = found.eval_cases
    if not isinstance(read, DatasetCase) or not read.recorded:
        return _no_answers("what the program wrote of the case has no answer: its `agent_data` ends with the user")
    last = read.recorded[-1]
    if last.user_content.text != content.text:
        return _no_answers("what the program wrote of the case is the answer to another message")
    data: Any = case.get("agent_data", case.get("agentData"))
    return last, [event for turn in data["turns"] for event in turn.get("events") or ()]


def make_command_agent(context: DriverContext) -> CommandAgent | DatasetCommandAgent:
    """Return the driver of a configured agent: that of datasets if the command has its placeholders.

    Raises ConfigError if it lacks one of them.
    """
    agent, words = context.agent, tuple(context.agent.command or ())
    missing = [placeholder for placeholder in _PLACEHOLDERS if not any(placeholder in word for word in words)]
    if not missing:
        return DatasetCommandAgent(context, words)
    if len(missing) < len(_PLACEHOLDERS):
        hint = "for example `command: python extension.py --dataset {dataset} --output {output}`"
        raise ConfigError(f"the command of the agent {agent.name} lacks {missing[0]}", hint)
    return CommandAgent(context, words)
