"""Programs that answer whole datasets: the contract of agents-cli's extensions, ``--dataset FILE --output FILE``.

A program gets the waiting cases as an EvaluationDataset and writes one back with the complete ``agent_data`` of each
case. A case that it leaves out has no answer, whatever the exit code.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent_eval_action.agents.adk import runtime_spec
from agent_eval_action.agents.base import AgentSession, DriverContext, SessionEnd, SessionRequest, TurnDone
from agent_eval_action.agents.variable_advice import with_advice
from agent_eval_action.diagnostics.reader import Source, plural, read_bytes
from agent_eval_action.diagnostics.suggestions import free_name
from agent_eval_action.environments.runtime import AgentRuntimeSpec
from agent_eval_action.errors import AgentEnvironmentError, EvalFileError, Unreadable
from agent_eval_action.folders import relative
from agent_eval_action.formats.agents_cli import AGENTS_CLI
from agent_eval_action.formats.base import Reading
from agent_eval_action.llm.client import sendable_json
from agent_eval_action.processes.agent_service import Program, begin_program, program_log, shown_command, start_failure
from agent_eval_action.results.evalset import Content, DatasetCase, Invocation, JsonObject
from agent_eval_action.results.run_result import AgentConditions, AttemptError, ErrorKind

PLACEHOLDERS: Final = ("{dataset}", "{output}")
"""Placeholders in a command for the paths of the two files."""

_GATHER_S: Final = 0.2  # puts cases that begin together into one dataset


def command_conditions(spec: AgentRuntimeSpec, words: Sequence[str]) -> AgentConditions:
    """Return what is known of the environment of an agent that a command starts."""
    path = relative(spec.path.resolve(), spec.workspace.resolve())
    return AgentConditions(agent=spec.name, path=path, environment=shown_command(words))


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
        return command_conditions(self.spec, self._words)

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
        words = [word.replace(PLACEHOLDERS[0], dataset).replace(PLACEHOLDERS[1], output) for word in self._words]
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
