"""The ``adk`` and ``python`` drivers: workers run an agent folder or a function in the agent's own interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import uuid4

from agent_eval_action.agents.base import AgentSession, DriverContext, SessionEnd, SessionRequest, TurnDone
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.environments.build import is_index_unreachable
from agent_eval_action.environments.resolve import choose_interpreter, likely_interpreter
from agent_eval_action.environments.runtime import AgentEnvironment, AgentRuntimeSpec, Launch
from agent_eval_action.environments.variables import (
    advice_for,
    names_in_code,
    selected_install_env,
    with_advice,
    withheld_names,
)
from agent_eval_action.errors import AgentEnvironmentError, AgentEvalError
from agent_eval_action.folders import relative
from agent_eval_action.llm.credentials import dotenv_of_agent
from agent_eval_action.processes.agent_service import program_log
from agent_eval_action.processes.process import ForkServers, ProcessStarter, StartedProcess
from agent_eval_action.processes.protocol import to_invocation
from agent_eval_action.processes.worker import WorkerClient, WorkerPool, available_cores
from agent_eval_action.results.evalset import Content, FunctionCall
from agent_eval_action.results.run_result import AgentConditions, AttemptError, ErrorKind
from agent_eval_action.sandbox.sandboxes import reason_not_isolated

LOGS: Final = "logs"
"""Folder for the agents' output, inside the results folder."""

_USUAL_WORKERS = 2
"""On two cores, two parallel imports take as long as one, and the first answers come twice as fast."""


_Prepared = tuple[ProcessStarter, tuple[StartedProcess, ...]]
"""What starts workers, and the workers that already import the agent."""


class WorkerAgent:
    """An ``AgentDriver``.

    ``workers`` None: at most two, growing to one per core while they are saturated. ``servers`` are the run's fork
    servers, which agents share. ``sessions`` is the maximum number of concurrent sessions, if known; at first no more
    workers than that are started.
    """

    def __init__(
        self,
        spec: AgentRuntimeSpec,
        workers: int | None = None,
        servers: ForkServers | None = None,
        sessions: int | None = None,
    ) -> None:
        self.spec = spec
        self.servers = servers or ForkServers()
        self.sessions = sessions
        self._size = workers or available_cores()
        self._usual = workers or min(_USUAL_WORKERS, self._size)
        self._log = program_log(spec)
        self._launch: Future[Launch] = Future()
        self._starter: ProcessStarter | None = None
        self._preparing: Future[_Prepared] | None = None
        self._given_up = threading.Event()
        self._pool: WorkerPool | None = None
        self._warned = False

    def prepare(self) -> Future[_Prepared]:
        """Choose the interpreter and start the workers in a thread, while the caller continues.

        Optional: ``start`` calls it if needed. ``stop`` must follow either way.
        """
        if self._preparing is None:
            self._preparing = Future()
            threading.Thread(target=self._prepare, args=(self._preparing,), name="agent-start", daemon=True).start()
        return self._preparing

    @property
    def python(self) -> Path | None:
        """The chosen interpreter; None until it is chosen."""
        done = self._launch
        return done.result().environment.python if done.done() and not done.exception() else None

    async def wait_for_interpreter(self) -> None:
        """Wait until the interpreter is chosen or the choice has failed."""
        self.prepare()
        with contextlib.suppress(AgentEnvironmentError, OSError):
            await asyncio.shield(asyncio.wrap_future(self._launch))

    async def start(self) -> AgentConditions | AttemptError:
        """Wait until the agent is imported."""
        try:
            starter, workers = await self._prepared()
        except AgentEnvironmentError as error:
            unreachable = is_index_unreachable(error.hint or "")
            kind = ErrorKind.UNAVAILABLE if unreachable else ErrorKind.ENVIRONMENT
            return AttemptError(kind=kind, message=error.message, traceback=error.hint or "")
        except OSError as error:
            return AttemptError(kind=ErrorKind.ENVIRONMENT, message=f"the agent's worker cannot be started: {error}")
        self._pool = WorkerPool(starter, self._log, self._usual, self._size)
        ready = await self._pool.start(workers)
        how = starter.launch.environment.how
        if isinstance(ready, AttemptError):
            message = f"{ready.message} (environment: {how})"
            return with_advice(ready.model_copy(update={"message": message}), self.spec)
        path, workspace = self.spec.path.resolve(), self.spec.workspace.resolve()
        packages = "\n".join(str(name) for name in ready.get("packages", ()))
        return AgentConditions(
            agent=self.spec.name,
            path=relative(path, workspace),
            python=str(ready.get("python", "")),
            adk_version=str(ready.get("adk", "")),
            environment=how,
            models=tuple(str(name) for name in ready.get("models", ())),
            packages_digest=hashlib.sha256(packages.encode()).hexdigest(),
        )

    async def open(self, request: SessionRequest) -> AgentSession | AttemptError:
        if self._pool is None:
            return AttemptError(kind=ErrorKind.ENVIRONMENT, message="the agent was not started")
        name = uuid4().hex
        worker = await self._pool.acquire(name, alone=request.alone)
        if isinstance(worker, AttemptError):
            return worker
        names = {"app": request.app_name, "user": request.user_id, "session": request.session_id}
        history = [event.wire() for event in request.history]
        frame = {"op": "open", "s": name, **names, "state": request.state, "history": history}
        if request.replay is not None:
            frame["replay"] = request.replay.model_dump(mode="json", exclude={"expected"})
        opened = await worker.request(frame)
        if isinstance(opened, AttemptError):
            await self._pool.release(worker, name)
            return opened
        return WorkerSession(self, name, worker, self._pool, request.on_call)

    def warn_once(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            self.spec.log(text, "warning")

    async def stop(self) -> None:
        self._given_up.set()
        if self._pool is None and self._starter is not None:  # do not wait for the import of google-adk
            await asyncio.to_thread(self._starter.close)
        if self._preparing is not None:
            with contextlib.suppress(AgentEnvironmentError, OSError):
                starter, workers = await self._prepared()
                if self._pool is not None:
                    await self._pool.stop()
                else:
                    clients = [WorkerClient(process, starter.launch, self._log) for process in workers]
                    await asyncio.gather(*(client.stop() for client in clients))
                await asyncio.to_thread(starter.close)
        self._log.close()

    async def _prepared(self) -> _Prepared:
        # Shielded: a caller that gives up must not lose the workers that are being started.
        return await asyncio.shield(asyncio.wrap_future(self.prepare()))

    def _prepare(self, done: Future[_Prepared]) -> None:
        try:
            place = self.spec.locate()
            from_dotenv = dotenv_of_agent(self.spec.path, self.spec.workspace)
            if names := names_in_code(self.spec.path) & withheld_names(self.spec) - from_dotenv.keys():
                self.spec.log(advice_for(names), "warning")
            environment = choose_interpreter(self.spec, place, self._given_up)
            if self._given_up.is_set():
                raise AgentEnvironmentError("the run ended before the agent was started")  # noqa: TRY301 - as if it failed
            self.spec.log(f"imports the agent ({environment.how})", "info")
            self._launch.set_result(Launch(self.spec, place, environment))
            done.set_result(self._start_workers(self._launch.result()))
        except BaseException as error:  # noqa: BLE001 - passed on by the future
            if not self._launch.done():
                self._launch.set_exception(error)
            done.set_exception(error)

    def _start_workers(self, launch: Launch) -> _Prepared:
        starter = self._starter = self.servers.starter(launch)
        try:
            started = [starter.start()]
            # by now the eval files have usually been read, so ``sessions`` is set
            while len(started) < min(self._usual, self.sessions or self._usual) and not self._given_up.is_set():
                started.append(starter.start())
        except BaseException:
            starter.close()
            raise
        return starter, tuple(started)


@dataclass
class WorkerSession:
    """An ``AgentSession`` in a worker."""

    agent: WorkerAgent
    name: str
    worker: WorkerClient
    pool: WorkerPool
    on_call: Callable[[FunctionCall], None] | None
    _turns: int = field(default=0, init=False)
    _abandoned: bool = field(default=False, init=False)
    _end: SessionEnd | AttemptError | None = field(default=None, init=False)

    async def turn(self, content: Content) -> TurnDone | AttemptError:
        number, self._turns = self._turns, self._turns + 1
        request = {"op": "turn", "s": self.name, "content": content.wire(), "tell": self.on_call is not None}
        try:
            frame = await self.worker.request(request, on_call=self.on_call)
        except asyncio.CancelledError:
            self._abandoned = True
            raise
        if isinstance(frame, AttemptError):
            if frame.kind is ErrorKind.TIMEOUT:
                detail = f"; {frame.message}" if frame.message else ""
                message = f"the turn took longer than timeout_s ({self.agent.spec.timeout_s:g} s){detail}"
                frame = frame.model_copy(update={"message": message})
            return with_advice(frame.model_copy(update={"turn": number}), self.agent.spec)
        turn = to_invocation(frame, content, f"{self.name}-{number}")
        if isinstance(turn, AttemptError):
            return turn.model_copy(update={"turn": number})
        if turn.uncaptured:
            self.agent.warn_once(turn.uncaptured)
        throttled = frame.get("throttled")
        return TurnDone(turn, throttled if isinstance(throttled, int) else 0)

    async def close(self) -> SessionEnd | AttemptError:
        """Return the final state and free the worker for other sessions."""
        if self._end is None:
            request = {"op": "close", "s": self.name}
            if self._abandoned:
                # The run is over: do not wait for the turn, which may take a long time yet.
                self.worker.notify(request)
                self._end = AttemptError(kind=ErrorKind.STOPPED, message="the turn was given up")
            elif isinstance(frame := await self.worker.request(request), AttemptError):
                self._end = frame
            elif isinstance(state := frame.get("state"), dict):
                self._end = SessionEnd(state)
            else:
                self._end = AttemptError(kind=ErrorKind.PROTOCOL, message="the worker reported no session state")
            await self.pool.release(self.worker, self.name)
        return self._end


def make_worker_agent(context: DriverContext) -> WorkerAgent:
    """Return the driver of a configured agent."""
    # The base commit's agent may turn out not to be needed, so it starts with one worker.
    sessions = 1 if context.role == "base" else None
    return WorkerAgent(runtime_spec(context), context.agent.workers, context.fork_servers, sessions)


def prestart(settings: Settings, environ: Mapping[str, str], servers: ForkServers) -> None:
    """Start importing google-adk for the agents of a run, while this process imports its own modules.

    Skipped where agents get a uid of their own: what the change under test has installed must not run so early.
    """
    if not reason_not_isolated(environ) or settings.merge or settings.resume:
        return
    unnamed = AgentSettings(**dict(settings.agent_defaults), path=settings.start, name="")
    for agent in settings.agents or (unnamed,):
        chosen = not settings.only_agents or agent.name in settings.only_agents
        spec = runtime_spec(DriverContext(agent, settings, environ, settings.workspace))
        with contextlib.suppress(AgentEvalError, OSError):  # the run reports it
            python = likely_interpreter(spec, place := spec.locate())
            if chosen and agent.driver == "adk" and python is not None:
                servers.prestart(Launch(spec, place, AgentEnvironment(python, "")))


def runtime_spec(context: DriverContext) -> AgentRuntimeSpec:
    """Return how to run the code of a configured agent."""
    agent, settings = context.agent, context.settings
    return AgentRuntimeSpec(
        name=agent.name,
        path=agent.path,
        workspace=context.workspace,
        logs=settings.output_folder(settings.out / LOGS),
        cache=settings.output_folder(settings.cache_dir / "environments"),
        python=agent.python,
        function=agent.function or "",
        module=agent.module,
        timeout_s=agent.timeout_s,
        environ={**context.environ, **{name: value for name, value in agent.env.items() if value is not None}},
        env_allow=tuple(agent.env),
        install_env=selected_install_env(agent.install_env, context.environ),
        sandboxes=context.sandboxes,
        role=context.role,
        log=context.say,
    )
