"""The ``adk`` driver: an agent folder, run by google-adk's own Runner in the agent's own interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import uuid4

from agent_eval_action.agents.base import AgentSession, DriverContext, SessionEnd, SessionRequest, TurnDone
from agent_eval_action.agents.withheld_variables import advice_for, names_in_code, with_advice, withheld_names
from agent_eval_action.config.models import TURN_SECONDS
from agent_eval_action.environments.install import is_index_unreachable, selected_install_env
from agent_eval_action.environments.launch import AgentLimits, Launch, StartedProcess, start_process
from agent_eval_action.environments.resolve import AgentEnvironment, Log, Search, choose_interpreter
from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.folders import OutputFolder, file_name
from agent_eval_action.llm.credentials import dotenv_of
from agent_eval_action.processes.managed import OutputLog
from agent_eval_action.processes.pool import WorkerPool, available_cores
from agent_eval_action.processes.protocol import Frame, to_invocation
from agent_eval_action.processes.worker import WorkerClient
from agent_eval_action.results.evalset import Content
from agent_eval_action.results.run_result import AgentConditions, AttemptError, ErrorKind
from agent_eval_action.sandbox.sandboxes import Role, Sandbox, Sandboxes, agent_environ

LOGS: Final = "logs"
"""The folder of agents' output, in the folder of results."""

_FIRST_WORKERS = 2
"""Importing google-adk twice side by side costs no time on two cores, and the first answers come twice as fast."""


@dataclass(frozen=True, slots=True)
class AdkAgentOptions:
    """One agent. ``environ`` is the caller's whole environment: the driver picks what the agent sees.

    ``workers`` None: two to begin with where there are two cores, up to one per core while they are saturated.
    """

    name: str
    path: Path
    workspace: Path
    logs: OutputFolder
    cache: OutputFolder
    python: Path | None = None
    workers: int | None = None
    timeout_s: float = TURN_SECONDS
    concurrency: int = 32
    environ: Mapping[str, str] = field(default_factory=dict)
    env_allow: tuple[str, ...] = ()
    install_env: Mapping[str, str] = field(default_factory=dict)
    limits: AgentLimits = field(default_factory=AgentLimits)
    isolation: Sandboxes | None = None
    role: Role = "head"
    say: Log = lambda _text, _level: None

    @classmethod
    def of_context(cls, context: DriverContext) -> AdkAgentOptions:
        """The options of a configured agent."""
        agent, settings = context.agent, context.settings
        return cls(
            name=agent.name,
            path=agent.path,
            workspace=context.workspace,
            logs=settings.output_folder(settings.out / LOGS),
            cache=settings.output_folder(settings.cache_dir / "environments"),
            python=agent.python,
            workers=agent.workers,
            timeout_s=agent.timeout_s,
            concurrency=settings.concurrency,
            environ={**context.environ, **{name: value for name, value in agent.env.items() if value is not None}},
            env_allow=tuple(agent.env),
            install_env=selected_install_env(agent.install_env, context.environ),
            isolation=context.isolation,
            role=context.role,
            say=context.say,
        )

    def cell(self) -> Sandbox | None:
        """Where its code runs, where it has a uid of its own. Copies the workspace at the first call."""
        return self.isolation.cell(self.role, self.workspace.resolve()) if self.isolation else None


@dataclass(frozen=True, slots=True)
class _Prepared:
    environment: AgentEnvironment
    launch: Launch
    workers: tuple[StartedProcess, ...]


class AdkAgent:
    """The ``AgentDriver`` of an agent folder."""

    def __init__(self, options: AdkAgentOptions) -> None:
        self._options = options
        name = file_name(options.name) + (".base.log" if options.role == "base" else ".log")
        self._log = OutputLog(options.logs, name, options.limits.log_bytes)
        self._preparing: Future[_Prepared] | None = None
        self._given_up = threading.Event()
        self._pool: WorkerPool | None = None
        self._withheld = withheld_names(options.environ, options.env_allow)

    def prepare(self) -> None:
        """Choose the interpreter and start the workers, in a thread: the agent imports while the caller works on.

        Optional; ``start`` does it where it was not done. ``stop`` must follow either way.
        """
        if self._preparing is None:
            self._preparing = Future()
            threading.Thread(target=self._prepare, args=(self._preparing,), name="agent-start", daemon=True).start()

    @property
    def path(self) -> Path:
        """The agent's folder."""
        return self._options.path

    @property
    def isolation(self) -> Sandboxes | None:
        """What it runs in, where it has a uid of its own."""
        return self._options.isolation

    @property
    def python(self) -> Path | None:
        """The interpreter chosen; None before it is."""
        done = self._preparing
        return done.result().environment.python if done and done.done() and not done.exception() else None

    async def interpreter_chosen(self) -> None:
        """Wait until the interpreter is chosen, or it is known that there is none."""
        self.prepare()
        with contextlib.suppress(AgentEnvironmentError, OSError):
            await self._prepared()

    async def start(self) -> AgentConditions | AttemptError:
        """Wait until the agent is imported."""
        self.prepare()
        try:
            prepared = await self._prepared()
        except AgentEnvironmentError as error:
            away = is_index_unreachable(error.hint or "")
            kind = ErrorKind.UNAVAILABLE if away else ErrorKind.ENVIRONMENT
            return AttemptError(kind=kind, message=error.message, traceback=error.hint or "")
        except OSError as error:
            return AttemptError(kind=ErrorKind.ENVIRONMENT, message=f"the agent's worker cannot be started: {error}")
        self._pool = WorkerPool(prepared.launch, self._log, self._options.workers or available_cores())
        said = await self._pool.start(prepared.workers)
        if isinstance(said, AttemptError):
            where = f" (environment: {prepared.environment.how})"
            return with_advice(said.model_copy(update={"message": said.message + where}), self._withheld)
        packages = "\n".join(str(name) for name in said.get("packages", ()))
        return AgentConditions(
            agent=self._options.name,
            path=_relative(self._options.path, self._options.workspace),
            python=str(said.get("python", "")),
            adk_version=str(said.get("adk", "")),
            environment=prepared.environment.how,
            models=tuple(str(name) for name in said.get("models", ())),
            packages_digest=hashlib.sha256(packages.encode()).hexdigest(),
        )

    async def open(self, request: SessionRequest) -> AgentSession | AttemptError:
        """Begin a session in the worker with the fewest, or in one of its own."""
        if self._pool is None:
            return AttemptError(kind=ErrorKind.ENVIRONMENT, message="the agent was not started")
        name = uuid4().hex
        worker = await self._pool.acquire(name, alone=request.alone)
        if isinstance(worker, AttemptError):
            return worker
        opened = await worker.request(
            {
                "op": "open",
                "s": name,
                "app": request.app_name,
                "user": request.user_id,
                "session": request.session_id,
                "state": request.state,
            }
        )
        if isinstance(opened, AttemptError):
            await self._pool.release(worker, name)
            return opened
        return AdkSession(name, worker, self._pool, self._options.timeout_s, self._withheld)

    async def stop(self) -> None:
        """End every worker and everything they started."""
        if self._pool is not None:
            await self._pool.stop()
        elif self._preparing is not None:
            await self._discard()
        self._log.close()

    async def _prepared(self) -> _Prepared:
        assert self._preparing is not None  # noqa: S101 - prepare() was called
        # Shielded: a caller that gives up must not lose the workers that are being started.
        return await asyncio.shield(asyncio.wrap_future(self._preparing))

    async def _discard(self) -> None:
        self._given_up.set()
        try:
            prepared = await self._prepared()
        except (AgentEnvironmentError, OSError):
            return
        pool = WorkerPool(prepared.launch, self._log, len(prepared.workers))
        pool.adopt(prepared.workers)
        await pool.stop()

    def _prepare(self, done: Future[_Prepared]) -> None:
        try:
            done.set_result(self._prepare_now())
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            done.set_exception(error)

    def _prepare_now(self) -> _Prepared:
        options = self._options
        folder, workspace = options.path.resolve(), options.workspace.resolve()
        if not folder.is_dir():
            raise AgentEnvironmentError(f"the agent folder {options.path} does not exist")
        cell = options.cell()
        if cell is not None:
            folder, workspace = cell.inside(folder), cell.tree
        search = Search(
            folder,
            workspace,
            options.cache,
            options.environ,
            options.python,
            self._given_up,
            cell,
            options.install_env,
            options.say,
        )
        if asked := names_in_code(options.path) & self._withheld - _dotenv_names(options):
            options.say(advice_for(asked), "warning")
        environment, seen = choose_interpreter(search), agent_environ(options.environ, options.env_allow)
        if self._given_up.is_set():
            raise AgentEnvironmentError("the run ended before the agent was started")
        launch = Launch(
            python=environment.python,
            environ=cell.environ(seen) if cell else seen,
            folder=folder,
            workspace=workspace,
            timeout_s=options.timeout_s,
            limits=options.limits,
            cell=cell,
        )
        return _Prepared(
            environment,
            launch,
            tuple(start_process(launch) for _ in range(options.workers or min(_FIRST_WORKERS, available_cores()))),
        )


class AdkSession:
    """An ``AgentSession``: a session in a worker."""

    def __init__(
        self, name: str, worker: WorkerClient, pool: WorkerPool, timeout_s: float, withheld: frozenset[str]
    ) -> None:
        self._name = name
        self._worker = worker
        self._pool = pool
        self._timeout_s = timeout_s
        self._withheld = withheld
        self._turns = 0
        self._abandoned = False
        self._end: SessionEnd | AttemptError | None = None

    async def turn(self, content: Content) -> TurnDone | AttemptError:
        """One turn, at most ``timeout_s`` long."""
        number, self._turns = self._turns, self._turns + 1
        wire = content.model_dump(mode="json", exclude_none=True)
        try:
            frame = await self._worker.request({"op": "turn", "s": self._name, "content": wire})
        except asyncio.CancelledError:
            self._abandoned = True
            raise
        if not isinstance(frame, AttemptError):
            turn = to_invocation(frame, content, f"{self._name}-{number}")
            if isinstance(turn, AttemptError):
                return turn.model_copy(update={"turn": number})
            refused = frame.get("throttled")
            return TurnDone(turn, refused if isinstance(refused, int) else 0)
        message = frame.message
        if frame.kind is ErrorKind.TIMEOUT:
            message = f"the turn took longer than timeout_s ({self._timeout_s:g} s)" + (
                f"; {message}" if message else ""
            )
        return with_advice(frame.model_copy(update={"turn": number, "message": message}), self._withheld)

    async def close(self) -> SessionEnd | AttemptError:
        """The final state; the worker is free for other sessions."""
        if self._end is None:
            frame: Frame | AttemptError
            if self._abandoned:
                # The run is over: the worker may be busy with that turn for a long time yet.
                frame = AttemptError(kind=ErrorKind.STOPPED, message="the turn was given up")
                self._worker.tell({"op": "close", "s": self._name})
            else:
                frame = await self._worker.request({"op": "close", "s": self._name})
            await self._pool.release(self._worker, self._name)
            self._end = frame if isinstance(frame, AttemptError) else _end_of(frame)
        return self._end


def _dotenv_names(options: AdkAgentOptions) -> frozenset[str]:
    """The variables that the agent's own .env gives it."""
    try:
        return frozenset(dotenv_of([options.path.resolve()], options.workspace.resolve()))
    except (OSError, ValueError):  # unreadable, or no text: then it gives the agent nothing
        return frozenset()


def _end_of(frame: Mapping[str, object]) -> SessionEnd | AttemptError:
    state = frame.get("state")
    if not isinstance(state, dict):
        return AttemptError(kind=ErrorKind.PROTOCOL, message="the worker reported no session state")
    return SessionEnd(final_state=state)


def _relative(path: Path, workspace: Path) -> str:
    path, workspace = path.resolve(), workspace.resolve()
    return path.relative_to(workspace).as_posix() if path.is_relative_to(workspace) else path.as_posix()


def make_adk_agent(context: DriverContext) -> AdkAgent:
    """The driver of an agent folder."""
    return AdkAgent(AdkAgentOptions.of_context(context))
