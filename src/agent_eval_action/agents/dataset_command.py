"""Programs that answer whole datasets: the contract of agents-cli's extensions, ``--dataset FILE --output FILE``.

A program gets the cases that wait as an EvaluationDataset and writes one back in which each has its complete
``agent_data``. A case that it leaves out was not answered, whatever its exit code says.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent_eval_action.agents.adk import runtime_spec
from agent_eval_action.agents.base import AgentSession, DriverContext, SessionEnd, SessionRequest, TurnDone
from agent_eval_action.agents.variable_advice import with_advice, withheld_names
from agent_eval_action.diagnostics.reader import Source, plural, read_bytes
from agent_eval_action.environments.runtime import AgentFolder, AgentRuntimeSpec
from agent_eval_action.errors import AgentEnvironmentError, ConfigError, EvalFileError, Unreadable
from agent_eval_action.folders import relative
from agent_eval_action.formats.agents_cli import AGENTS_CLI
from agent_eval_action.formats.base import Reading
from agent_eval_action.llm.client import sendable_json
from agent_eval_action.processes.agent_service import Program, begin_program, program_log, shown_command, start_failure
from agent_eval_action.processes.process import OutputLog
from agent_eval_action.results.evalset import Content, DatasetCase, Invocation, JsonObject
from agent_eval_action.results.run_result import AgentConditions, AttemptError, ErrorKind

PLACEHOLDERS: Final = ("{dataset}", "{output}")
"""What stands in a command for the paths of the two files."""

_GATHER_S: Final = 0.2  # cases that begin together go together

_Events = list[JsonObject]


def takes_datasets(words: Sequence[str]) -> bool:
    """Whether a command speaks this contract: it has a placeholder for one of the files."""
    return any(placeholder in word for word in words for placeholder in PLACEHOLDERS)


def command_conditions(spec: AgentRuntimeSpec, words: Sequence[str]) -> AgentConditions:
    """What is known of the environment of an agent that a command starts."""
    path = relative(spec.path.resolve(), spec.workspace.resolve())
    return AgentConditions(agent=spec.name, path=path, environment=shown_command(words))


@dataclass
class _Asked:
    """A turn that waits for its answer. ``case`` has no id yet: one that is unique in the dataset is given to it."""

    name: str
    case: JsonObject
    alone: bool
    answer: asyncio.Future[JsonObject | AttemptError]


def _answer(asked: _Asked, answer: JsonObject | AttemptError) -> None:
    """Hand over an answer, unless there is one or nobody waits for it any more."""
    if not asked.answer.done():
        asked.answer.set_result(answer)


@dataclass
class DatasetCommandAgent:
    """An ``AgentDriver``. One program runs at a time, for all turns that wait, at most ``size`` of them."""

    spec: AgentRuntimeSpec
    words: tuple[str, ...]
    size: int
    _waiting: list[_Asked] = field(default_factory=list, init=False)
    _runner: asyncio.Task[None] | None = field(default=None, init=False)
    _log: OutputLog = field(init=False)

    def __post_init__(self) -> None:
        self._log = program_log(self.spec)

    async def start(self) -> AgentConditions | AttemptError:
        """Nothing is started before there is a dataset."""
        return command_conditions(self.spec, self.words)

    async def open(self, request: SessionRequest) -> AgentSession | AttemptError:
        return DatasetSession(self, request)

    async def stop(self) -> None:
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        self._give_up(self._waiting)  # of a runner that was stopped before it began
        self._log.close()

    async def ask(self, name: str, case: JsonObject, *, alone: bool) -> JsonObject | AttemptError:
        """Return the case as a program answered it, or why there is no answer. May be cancelled."""
        asked = _Asked(name, case, alone, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run_all())
        try:
            return await asked.answer
        finally:
            if asked in self._waiting:
                self._waiting.remove(asked)

    async def _run_all(self) -> None:
        """Run programs until nothing waits. However it ends, nobody waits after it."""
        batch: list[_Asked] = []
        try:
            while self._waiting:
                await asyncio.sleep(_GATHER_S)
                alone = next((asked for asked in self._waiting if asked.alone), None)
                batch = [alone] if alone else self._waiting[: self.size]
                self._waiting = [asked for asked in self._waiting if asked not in batch]
                for asked, answer in zip(batch, await self._run(batch), strict=True):
                    _answer(asked, answer)
        finally:
            self._give_up((*batch, *self._waiting))

    @staticmethod
    def _give_up(waiting: Sequence[_Asked]) -> None:
        for asked in waiting:
            _answer(asked, AttemptError(kind=ErrorKind.STOPPED, message="the run was stopped"))

    async def _run(self, batch: Sequence[_Asked]) -> Sequence[JsonObject | AttemptError]:
        ids = _unique([asked.name for asked in batch])
        cases = [{"eval_case_id": name, **asked.case} for name, asked in zip(ids, batch, strict=True)]
        try:
            place = await asyncio.to_thread(self.spec.locate)
            folder = await asyncio.to_thread(_make_folder, place, {"eval_cases": cases})
        except (AgentEnvironmentError, OSError) as error:
            return [start_failure(error, self.words)] * len(batch)
        try:
            failure = await self._run_program(folder, batch)
            if failure is not None:
                return [failure] * len(batch)
            answered = await asyncio.to_thread(_read_answers, folder / "out", self.spec.limits.turn_bytes)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        if isinstance(answered, AttemptError):
            return [answered] * len(batch)
        lost = AttemptError(kind=ErrorKind.EXCEPTION, message="the program left the case out of what it wrote")
        return [answered.get(name, lost) for name in ids]

    async def _run_program(self, folder: Path, batch: Sequence[_Asked]) -> AttemptError | None:
        """Run a program to its end; return why its output does not count."""
        dataset, output = str(folder / "dataset.json"), str(folder / "out" / "answers.json")
        words = [word.replace(PLACEHOLDERS[0], dataset).replace(PLACEHOLDERS[1], output) for word in self.words]
        program = await begin_program(self.spec, words, self._log)
        if isinstance(program, AttemptError):
            return program
        ended = asyncio.ensure_future(asyncio.to_thread(program.process.wait))
        given_up = asyncio.ensure_future(asyncio.wait([asked.answer for asked in batch]))
        try:
            limit_s = self.spec.timeout_s * len(batch)
            await asyncio.wait({ended, given_up}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return await asyncio.to_thread(_why_failed, program)
            what = f"the program took longer than timeout_s ({self.spec.timeout_s:g} s) for each of"
            return AttemptError(kind=ErrorKind.TIMEOUT, message=f"{what} {plural(len(batch), 'case')}")
        finally:
            given_up.cancel()
            await asyncio.shield(asyncio.to_thread(program.stop, self.spec.limits.stop_s))
            await ended


def _why_failed(program: Program) -> AttemptError | None:
    """Why the output of a program that has ended does not count."""
    if program.has_ended and program.process.returncode == 0:
        return None
    program.output.finish()
    return AttemptError(
        kind=ErrorKind.DIED, message=f"the program {program.end_description()}", traceback=program.tail()
    )


def _unique(names: Sequence[str]) -> list[str]:
    """The names, with a number behind those that are there already: repeats of a case are in one dataset."""
    taken: dict[str, None] = {}
    for name in names:
        free = name
        number = 2
        while free in taken:
            free, number = f"{name}-{number}", number + 1
        taken[free] = None
    return list(taken)


def _make_folder(place: AgentFolder, dataset: JsonObject) -> Path:
    """A folder with the dataset, which nobody but us can change, and a folder for the answers, which is the agent's."""
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
    """The cases by id as the program wrote them. It has ended; what it left may be anything, links included."""
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
    """An ``AgentSession``: each turn is a case whose conversation so far is that of the turns before."""

    def __init__(self, agent: DatasetCommandAgent, request: SessionRequest) -> None:
        self._agent = agent
        self._request = request
        self._events: _Events = [event.model_dump(mode="json", exclude_none=True) for event in request.history]
        self._turns = 0
        self._withheld = withheld_names(agent.spec.environ, agent.spec.env_allow)

    async def turn(self, content: Content) -> TurnDone | AttemptError:
        number, self._turns = self._turns, self._turns + 1
        message = content.model_dump(mode="json", exclude_none=True)
        asked: JsonObject = {"author": "user", "content": message}
        if not number and self._request.state:
            asked["state_delta"] = self._request.state
        events = [*self._events, asked]
        begins_anew = len(events) == 1 and "state_delta" not in asked
        turn = {"turn_index": 0, "turn_id": "turn_0", "events": events}
        case = {"prompt": message} if begins_anew else {"agent_data": {"turns": [turn]}}
        key, started = self._request.key, time.time()
        answered = await self._agent.ask(key.case if key else "case", case, alone=self._request.alone)
        made = answered if isinstance(answered, AttemptError) else _last_turn(answered, content)
        if isinstance(made, AttemptError):
            return with_advice(made.model_copy(update={"turn": number}), self._withheld)
        assert isinstance(answered, dict)  # noqa: S101 - a turn was made of it
        said = _events_of(answered)
        self._events = said if said[0].get("author") == "user" else [asked, *said]
        return TurnDone(made.model_copy(update={"creation_timestamp": started}))

    async def close(self) -> SessionEnd | AttemptError:
        """The state is not known: a dataset does not hold it."""
        return SessionEnd(None)


def _events_of(case: JsonObject) -> _Events:
    data = case.get("agent_data", case.get("agentData"))
    turns = data.get("turns") if isinstance(data, dict) else None
    return [event for turn in turns or () for event in turn.get("events") or ()]


def _last_turn(case: JsonObject, content: Content) -> Invocation | AttemptError:
    """The turn that a program made, read as the traces of agents-cli are."""
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
    return last


def make_dataset_agent(context: DriverContext, words: tuple[str, ...]) -> DatasetCommandAgent:
    """Return the driver of a configured agent. Raises ConfigError where a file has no place in the command."""
    if missing := [placeholder for placeholder in PLACEHOLDERS if not any(placeholder in word for word in words)]:
        message = f"the command of the agent {context.agent.name} lacks {missing[0]}"
        raise ConfigError(message, "for example `command: python extension.py --dataset {dataset} --output {output}`")
    return DatasetCommandAgent(runtime_spec(context), words, context.settings.concurrency)
