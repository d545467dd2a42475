"""Conversations to make cases of: live ones with a configured agent, through the drivers of a run, or from files."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from agent_eval_action.agents import AGENTS
from agent_eval_action.agents.adk import LOGS
from agent_eval_action.agents.base import AgentDriver, AgentSession, DriverContext, SessionEnd, SessionRequest
from agent_eval_action.agents.foreign_recordings import read_file
from agent_eval_action.capture.cases import most_frequent
from agent_eval_action.config.criteria import UserSimulatorConfig
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.errors import ResultsError
from agent_eval_action.folders import OutputFolder
from agent_eval_action.llm.budget import Meter
from agent_eval_action.processes.process import ForkServers
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.evalset import (
    Content,
    EvalCase,
    FunctionCall,
    Invocation,
    Part,
    SessionInput,
)
from agent_eval_action.results.redaction import Redaction
from agent_eval_action.results.run_result import Attempt, AttemptError
from agent_eval_action.results.transcripts import (
    ATTEMPTS,
    BLOB_PREFIX,
    BLOBS,
    TranscriptWriter,
    parse_attempt,
    read_lines,
)
from agent_eval_action.run import resources
from agent_eval_action.run.attempt_runner import AttemptRunner
from agent_eval_action.run.base_agents import AgentGroup
from agent_eval_action.run.collector import ResultCollector
from agent_eval_action.run.events import AgentStarting, AttemptFinished, Event, Notice
from agent_eval_action.run.plan import Plan, PlannedCase, PlannedSet
from agent_eval_action.sandbox.sandboxes import Level

_SET = "captured"


@contextlib.asynccontextmanager
async def open_agent(
    settings: Settings,
    agent: AgentSettings,
    environ: Mapping[str, str],
    emit: Callable[[Event], None],
    redaction: Redaction,
) -> AsyncIterator[AgentGroup]:
    """Start an agent as a run does, and end it with everything it started. The group's ``starts`` hold its errors.

    Adds the agent's secrets to ``redaction``, which removes them from its logs. Raises ConfigError for unusable
    settings.
    """
    resources.refuse_unusable_agents([agent], settings.workspace, environ)
    redaction.hide(resources.agent_secrets([agent], environ, settings.workspace))
    redaction.hide_matches(settings.redact)
    loop = asyncio.get_running_loop()

    def say(text: str, level: Level) -> None:  # called in the thread in which the agent starts
        event = Notice(f"{agent.name}: {text}", level) if level == "warning" else AgentStarting(agent.name, text)
        loop.call_soon_threadsafe(emit, event)

    async with contextlib.AsyncExitStack() as stack:
        logs = settings.output_folder(settings.out / LOGS)
        stack.push_async_callback(asyncio.to_thread, resources.redact_logs, logs, redaction)
        sandbox = await resources.open_sandbox(settings, environ, [agent], emit)
        if sandbox is not None:
            stack.push_async_callback(asyncio.to_thread, sandbox.close)
        context = DriverContext(
            agent, settings, environ, settings.workspace, sandbox, say=say, fork_servers=ForkServers()
        )
        driver: AgentDriver = AGENTS[agent.driver](context)
        replayed = resources.recordings([agent])
        group = AgentGroup.start("head", {agent.name: driver}, replay_only=replayed, sandboxes=sandbox)
        stack.push_async_callback(group.stop)
        yield group


async def converse(
    settings: Settings,
    agent: AgentSettings,
    conversations: Sequence[Sequence[str | Content]],
    *,
    environ: Mapping[str, str],
    emit: Callable[[Event], None] = lambda _: None,
    session: SessionInput | None = None,
    redaction: Redaction | None = None,
) -> tuple[Attempt, ...]:
    """Have conversations with an agent, each in its own session; return an attempt for each, in order.

    A conversation is a sequence of user messages. If the agent does not start or answer, the attempt has an
    ``error``; conversations beyond the limits of ``settings`` have no attempt. The agent's secrets and those of
    ``redaction`` are removed. Raises ConfigError.
    """
    redaction = redaction or Redaction()
    cases = [
        EvalCase(
            eval_id=str(number),
            conversation=tuple(Invocation(user_content=_content(message)) for message in messages),
            session_input=session,
        )
        for number, messages in enumerate(conversations)
    ]
    planned = PlannedSet(
        agent=agent.name,
        key=_SET,
        path=_SET,
        cases=tuple(PlannedCase(case, "") for case in cases),
        criteria=(),
        infos=(),
        simulator=UserSimulatorConfig(),
    )
    plan, made = Plan((planned,)), dict[str, Attempt]()

    def keep(event: Event) -> None:
        if isinstance(event, AttemptFinished):
            made[event.attempt.case] = event.attempt
        emit(event)

    with tempfile.TemporaryDirectory(prefix="agent-eval-") as folder:
        async with open_agent(settings, agent, environ, emit, redaction) as group:
            with TranscriptWriter(OutputFolder.at(Path(folder))) as writer:
                runner = AttemptRunner(
                    asyncio.create_task(asyncio.sleep(0)),
                    writer,
                    ResultCollector(plan),
                    Meter.for_run(settings),
                    keep,
                    redact=redaction.value,
                    concurrency=settings.concurrency,
                    retries=settings.retries,
                )
                await runner.make(plan.attempts(), group)
    return tuple(made[case.eval_id] for case in cases if case.eval_id in made)


def _content(message: str | Content) -> Content:
    return message if isinstance(message, Content) else Content(parts=(Part(text=message),), role="user")


@dataclass
class LiveConversation:
    """An interactive conversation with an agent; see ``open_agent``.

    ``turns``: the successful turns so far. The request's ``on_call`` receives the calls of new turns, not those of
    turns that are repeated.
    """

    driver: AgentDriver
    request: SessionRequest
    turns: list[Invocation] = field(default_factory=list)
    _session: AgentSession | None = None
    _repeats: bool = False

    async def say(self, message: str) -> Invocation | AttemptError:
        """Send a message and return the agent's turn.

        An error ends the session, because the session may have recorded the failed message. The next message then
        begins a new session and sends the earlier messages again.
        """
        if self._session is None and (error := await self._begin()):
            return error
        return await self._turn(_content(message))

    async def undo(self) -> AttemptError | None:
        """Remove the last turn, by sending the earlier messages again in a new session."""
        await self.end()
        self.turns.pop()
        return await self._begin() if self.turns else None

    async def end(self) -> dict[str, Any] | None:
        """End the session. Returns its final state, or None if the driver cannot read it."""
        session, self._session = self._session, None
        end = await session.close() if session is not None else None
        return end.final_state if isinstance(end, SessionEnd) else None

    async def _begin(self) -> AttemptError | None:
        on_call = None if self.request.on_call is None else self._report_call
        opened = await self.driver.open(replace(self.request, on_call=on_call))
        if isinstance(opened, AttemptError):
            return opened
        self._session = opened
        before, self.turns, self._repeats = self.turns, [], True
        try:
            for turn in before:
                if isinstance(made := await self._turn(turn.user_content), AttemptError):
                    return made
            before = self.turns
        finally:
            self.turns, self._repeats = before, False
        return None

    def _report_call(self, call: FunctionCall) -> None:
        if self.request.on_call is not None and not self._repeats:
            self.request.on_call(call)

    async def _turn(self, message: Content) -> Invocation | AttemptError:
        if self._session is None:
            raise ValueError("the session has ended")
        done = await self._session.turn(message)
        if isinstance(done, AttemptError):
            await self.end()
            return done
        self.turns.append(done.invocation)
        return done.invocation


RESULTS: Final = "results.json"


def past_conversations(path: Path) -> tuple[Attempt, ...]:
    """Read every conversation in a file, or in a folder with the results of a run: the most frequent one of each case.

    Raises ResultsError or EvalFileError if it cannot be read or holds no conversation.
    """
    if path.is_dir() or path.name in {RESULTS, ATTEMPTS}:
        found = tuple(_conversations_of_run(path if path.is_dir() else path.parent))
    else:
        found = tuple(made for made in read_file(path) if made.turns)
    if not found:
        hint = "give a session of google-adk, a trace of agents-cli, or the results.json of a run"
        raise ResultsError(f"{path} holds no conversation", hint=hint)
    return found


def has_failed(attempt: Attempt) -> bool:
    """Whether an attempt missed a threshold; recordings of other tools have none."""
    return any(score.passed is False for score in attempt.scores)


def attempts_of_run(
    folder: Path, cases: Collection[CaseKey] | None = None, workspace: Path | None = None
) -> dict[CaseKey, list[Attempt]]:
    """Read, by case, a run's attempts of the head (not of the base) that have an answer.

    ``cases``: only these. Raises ResultsError if there are none.
    """
    path = folder / ATTEMPTS
    if not path.exists():
        hint = f"{RESULTS} alone holds excerpts; a run writes {ATTEMPTS} beside it"
        raise ResultsError(f"there is no {path}", hint=hint)
    found: dict[CaseKey, list[Attempt]] = {}
    for number, _, line in read_lines(path, workspace):
        attempt = parse_attempt(path, number, line)
        if attempt.arm == "head" and attempt.turns and (cases is None or attempt.key.case_key in cases):
            found.setdefault(attempt.key.case_key, []).append(attempt)
    return found


def _conversations_of_run(folder: Path) -> Iterator[Attempt]:
    for attempts in attempts_of_run(folder).values():
        whole = [attempt for attempt in attempts if attempt.error is None]
        # a failed attempt makes the more useful case
        if chosen := list(filter(has_failed, whole)) or whole:
            attempt = chosen[most_frequent([attempt.turns for attempt in chosen])[0]]
            yield attempt.model_copy(update={"turns": tuple(with_media(turn, folder) for turn in attempt.turns)})


def with_media(turn: Invocation, folder: Path) -> Invocation:
    """Return the turn with the files that its user sent; a run stores them in ``folder``. Raises ResultsError."""
    wire = turn.user_content.model_dump(mode="json")
    if not any(map(_digest, wire["parts"] or ())):
        return turn
    for part in wire["parts"]:
        if digest := _digest(part):
            try:
                with OutputFolder.at(folder).read(f"{BLOBS}/{digest}") as file:
                    part["inline_data"]["data"] = base64.b64encode(file.read()).decode()
            except OSError as error:
                message = f"a file that the user sent cannot be read: {error.strerror or error}"
                raise ResultsError(f"{folder / BLOBS / digest}: {message}") from error
    return turn.model_copy(update={"user_content": type(turn.user_content).model_validate(wire)})


def _digest(part: dict[str, Any]) -> str:
    data = (part.get("inline_data") or {}).get("data")
    return data.removeprefix(BLOB_PREFIX) if isinstance(data, str) and data.startswith(BLOB_PREFIX) else ""
