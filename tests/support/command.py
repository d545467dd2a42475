"""``agent-eval`` as a process of its own, forked from one that has imported it: its start is most of its time.

Each pytest process has one server, which forks per call. The child has the arguments, the folder, the environment and
the streams of a started command, and ends as one does; ``pytest`` is had in the same way. What is about the start
itself, about the signals of a job or about the process's place among others starts ``COMMAND``.

A run forks its agent's workers from a process that has imported google-adk, and this import is most of a short run. The
server starts such a process, a fork server, and keeps it for the next run whose agent is started alike.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import inspect
import json
import os
import pickle
import pkgutil
import resource
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

COMMAND = str(Path(sys.executable).with_name("agent-eval"))
ENDS_WITHIN_S = 250.0  # sooner than the time a test has, so that the output is not lost
_LONGEST_CALL = 1 << 20
_ENVIRONMENTS = Path(__file__).parents[2] / ".venvs"
_KEPT_FORK_SERVERS = 3  # as each takes 100 MB
_HEAVY = (
    "aiohttp",
    "dotenv",
    "google.genai",
    "jinja2.sandbox",
    "numpy.random",
    "rouge_score.tokenize",
    "scipy.special",
)
"""What a run imports when it needs it."""


def agent_eval(
    *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """``agent-eval WORDS`` with nothing on standard input; ``env`` is the whole environment, as in ``subprocess``."""
    done = agent_eval_bytes(*words, cwd=cwd, env=env)
    out, err = (data.decode().replace("\r\n", "\n").replace("\r", "\n") for data in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def agent_eval_bytes(
    *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """The same with the streams as they were written."""
    return _run([COMMAND, *map(str, words)], cwd, env)


def pytest_session(*words: str, cwd: Path, env: Mapping[str, str]) -> tuple[int, str]:
    """``python -m pytest WORDS``: its exit code, and what it printed."""
    done = _run([sys.executable, "-m", "pytest", *words], cwd, env)
    return done.returncode, (done.stdout + done.stderr).decode()


def on_terminal(terminal: int, words: Sequence[str], cwd: Path, env: Mapping[str, str]) -> Process:
    """``agent-eval WORDS`` in a session of its own, whose terminal is this descriptor of a pseudo-terminal."""
    argv = [COMMAND, *words]
    if _can_fork(env):
        return _server().start(argv, str(cwd), env, terminal, terminal)

    def lead_session() -> None:
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    return subprocess.Popen(argv, cwd=cwd, env=env, preexec_fn=lead_session, **streams)  # noqa: PLW1509 - two calls of the system


class Process(Protocol):
    """What was started."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises ``subprocess.TimeoutExpired``."""


def _run(argv: list[str], cwd: Path | None, env: Mapping[str, str] | None) -> subprocess.CompletedProcess[bytes]:
    environ = dict(os.environ if env is None else env)
    if not _can_fork(environ):
        pipe, none = subprocess.PIPE, subprocess.DEVNULL
        streams = {"stdin": none, "stdout": pipe, "stderr": pipe}
        return subprocess.run(argv, cwd=cwd, env=environ, timeout=ENDS_WITHIN_S, check=False, **streams)
    out, out_write = os.pipe()
    err, err_write = os.pipe()
    process = _server().start(argv, str(cwd or Path.cwd()), environ, out_write, err_write)
    os.close(out_write)
    os.close(err_write)
    read = {out: b"", err: b""}

    def read_all(fd: int) -> None:
        with open(fd, "rb") as stream:
            read[fd] = stream.read()

    readers = [threading.Thread(target=read_all, args=(fd,)) for fd in read]
    for reader in readers:
        reader.start()
    code = process.wait(ENDS_WITHIN_S)
    for reader in readers:
        reader.join()
    return subprocess.CompletedProcess(argv, code, read[out], read[err])


def _can_fork(environ: Mapping[str, str]) -> bool:
    """Whether Python starts there as the server did."""
    return environ.get("PYTHONPATH") == os.environ.get("PYTHONPATH") and hasattr(os, "pidfd_open")


@dataclass
class _Forked:
    pid: int
    answers: socket.socket

    def wait(self, timeout: float | None = None) -> int:
        self.answers.settimeout(timeout)
        with self.answers:
            try:
                return int(self.answers.recv(64))
            except TimeoutError:
                os.kill(self.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from None


class _Server:
    """The client's side: one call is one connection, so calls may overlap."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = [sys.executable, __file__, str(theirs.fileno())]
        self._process = subprocess.Popen(program, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        self._calls = ours
        atexit.register(self._end)

    def _end(self) -> None:
        self._calls.close()
        self._process.wait(10)

    def start(self, argv: list[str], cwd: str, env: Mapping[str, str], out: int, err: int) -> _Forked:
        answers, answering = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        call = json.dumps([argv, cwd, dict(env), resource.getrlimit(resource.RLIMIT_FSIZE)]).encode()
        with answering:
            socket.send_fds(self._calls, [call], [answering.fileno(), out, err])
        return _Forked(int(answers.recv(64)), answers)


@functools.cache
def _server() -> _Server:
    return _Server()


class _Exec(BaseException):
    """The command replaces itself by a start of itself, which is what it does in a job: its environment."""


class _Fork(Exception):  # noqa: N818 - raised in a child to leave the server's loop, not to report an error
    """The child's call: its JSON, and the descriptors of its two streams."""


class _ForkServers:
    """Fork servers that runs share. Workers end with their run, as those of a fork server of its own do."""

    def __init__(self) -> None:
        self._sockets: dict[Any, int] = {}  # by command and variables; a fork of this process inherits them
        self.orders, self._order = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def obey(self) -> None:
        """Start a server that a run has ordered, or forget one that has failed."""
        order, fds, _, _ = socket.recv_fds(self.orders, _LONGEST_CALL, 2)
        key = command, variables = pickle.loads(order)  # noqa: S301 - of a fork of this process
        unused = [self._sockets.pop(key)] if key in self._sockets else []
        if fds:
            self._sockets[key], theirs = fds
            environ = {**dict(variables), "AGENT_EVAL_WORKER": secrets.token_hex(16)}
            streams = {"stdin": subprocess.DEVNULL, "stdout": theirs, "stderr": theirs}
            argv = [*command, str(theirs)]
            subprocess.Popen(argv, env=environ, cwd="/", start_new_session=True, pass_fds=[theirs], **streams)
            unused.append(theirs)
        unused += [self._sockets.pop(old) for old in list(self._sockets)[:-_KEPT_FORK_SERVERS]]
        for fd in unused:
            os.close(fd)

    def share(self) -> None:
        """Have the run of this process, a fork, use them where its agent is of an environment that stays, and is us."""
        module = importlib.import_module("agent_eval_action.processes.process")
        sockets, order = self._sockets, self._order

        class Client(module.ForkServerClient):  # type: ignore[name-defined, misc] # known when this runs
            def __init__(self, launch: Any) -> None:
                self._shared = launch.place.user is None and launch.environment.python.is_relative_to(_ENVIRONMENTS)
                if not self._shared:
                    super().__init__(launch)
                    return
                self.ready = self._closed = False
                self._key = tuple(launch.command()), tuple(sorted(launch.environ().items()))
                if self._key in sockets:
                    self._control = socket.socket(fileno=os.dup(sockets[self._key]))
                    return
                self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    socket.send_fds(order, [pickle.dumps(self._key)], [self._control.fileno(), theirs.fileno()])

            def fork(self, *request: Any) -> Any:
                forked = super().fork(*request)
                if self._shared and forked is None:
                    order.send(pickle.dumps(self._key))
                return forked

            def close(self) -> None:
                if self._shared:
                    self._closed = True
                    self._control.close()
                else:
                    super().close()

        module.ForkServerClient = Client


def _serve(calls: socket.socket, fork_servers: _ForkServers) -> None:
    """Fork per call until the client is gone; answer with the child's number, then with how it ended."""
    running: dict[int, tuple[int, int]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(calls, selectors.EVENT_READ)
        selector.register(fork_servers.orders, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == fork_servers.orders.fileno():
                    fork_servers.obey()
                elif key.fd == calls.fileno():
                    call, fds, _, _ = socket.recv_fds(calls, _LONGEST_CALL, 3)
                    if not call:
                        return
                    answers, *streams = fds
                    pid = os.fork()
                    if pid == 0:
                        calls.close()
                        for fd in (*running, *(answers for _, answers in running.values())):
                            os.close(fd)
                        os.close(answers)
                        raise _Fork(call, *streams)
                    for fd in streams:
                        os.close(fd)
                    os.write(answers, str(pid).encode())
                    end = os.pidfd_open(pid)
                    running[end] = (pid, answers)
                    selector.register(end, selectors.EVENT_READ)
                else:
                    selector.unregister(key.fd)
                    pid, answers = running.pop(key.fd)
                    with contextlib.suppress(BrokenPipeError):
                        os.write(answers, str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
                    os.close(answers)
                    os.close(key.fd)


def _become(fork_servers: _ForkServers, call: bytes, out: int, err: int) -> None:
    """Be what a start of the command with this call would have been."""
    argv, cwd, environ, file_size = json.loads(call)
    if file_size == list(resource.getrlimit(resource.RLIMIT_FSIZE)):  # which the agent's processes have, too
        fork_servers.share()
    resource.setrlimit(resource.RLIMIT_FSIZE, file_size)
    if os.isatty(out):
        os.setsid()
        fcntl.ioctl(out, termios.TIOCSCTTY, 0)
        os.dup2(out, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background processes ignore
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.chdir(cwd)
    _set_environ(environ)
    if argv[:1] == [sys.executable]:
        sys.argv, sys.path[0] = argv[2:], ""
        del sys.modules["agent_eval_action.pytest_plugin"]  # else pytest warns that it cannot rewrite it
        return
    sys.argv = argv
    sys.orig_argv = [sys.executable, *argv]
    os.execve = _exec  # type: ignore[assignment] # it never returns either


def _exec(path: str, argv: list[str], environ: Mapping[str, str | bytes]) -> None:
    assert (path, argv) == (sys.executable, sys.orig_argv), "the command starts nobody but itself so"
    raise _Exec(environ)


def _set_environ(environ: Mapping[str, str | bytes]) -> None:
    os.environ.clear()
    os.environ.update({name: os.fsdecode(value) for name, value in environ.items()})


def _main() -> None:
    # As in a start of the command: what lies beside it is on the path, what lies beside this file is not.
    sys.path[0] = str(Path(COMMAND).parent)
    # Of the libraries of numpy as well: a fork has one thread.
    os.environ |= {"PYDANTIC_DISABLE_PLUGINS": "__all__", "OPENBLAS_NUM_THREADS": "1"}
    ours = importlib.import_module("agent_eval_action")
    found = pkgutil.walk_packages(ours.__path__, f"{ours.__name__}.")
    for module in (*(each.name for each in found if ".worker" not in each.name), *_HEAVY):
        importlib.import_module(module)
    for model in _descendants(importlib.import_module("agent_eval_action.results.base").Frozen):
        model.model_rebuild()
    _read_parameters_ahead()
    page = importlib.import_module("agent_eval_action.reports.html")._environment()
    for name in page.list_templates():
        page.get_template(name)
    # One worker to begin with, as on one core: tests run side by side, and importing google-adk is most of a run.
    importlib.import_module("agent_eval_action.agents.adk")._USUAL_WORKERS = 1
    assert threading.active_count() == 1, "a fork has the main thread only"
    gc.collect()
    gc.freeze()  # so that children do not write to, and copy, every page
    fork_servers = _ForkServers()
    try:
        _serve(socket.socket(fileno=int(sys.argv[1])), fork_servers)
    except _Fork as fork:
        _become(fork_servers, *fork.args)
    else:
        return
    if sys.argv[0] == "pytest":
        code = importlib.import_module("pytest").main()
        sys.stdout.flush()
        os._exit(code)
    main = importlib.import_module("agent_eval_action.cli").main
    try:
        try:
            main()
        except _Exec as again:
            _set_environ(again.args[0])
            main()
    except SystemExit as end:
        # The streams are flushed. Taking a copy of all these objects apart is most of the time of a short call.
        atexit._run_exitfuncs()
        os._exit(end.code)


def _read_parameters_ahead() -> None:
    """Have typer remember the parameters of all commands but those whose options depend on the command line."""
    typer_main, commands = (importlib.import_module(name) for name in ("typer.main", "agent_eval_action.cli.app"))
    read, remembered = typer_main.get_params_from_function, functools.cache(typer_main.get_params_from_function)
    typer_main.get_params_from_function = lambda f: remembered(f) if inspect.isfunction(f) else read(f)
    typer_main.get_command(commands.app)
    for command in (each.callback for app in (commands.app, commands.baseline_app) for each in app.registered_commands):
        vars(command).pop("__signature__", None)


def _descendants(base: type[Any]) -> Iterator[type[Any]]:
    for model in base.__subclasses__():
        yield model
        yield from _descendants(model)


if __name__ == "__main__":
    _main()
