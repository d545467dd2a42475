"""``agent-eval`` as a process of its own, forked from one that has imported it: its start is most of its time.

Each pytest process has one server, which forks per call. The child has the arguments, the folder, the environment and
the streams of a started command, and ends as one does. What is about the start itself, about signals or about the
process's place among others starts ``COMMAND``.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import resource
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

COMMAND = str(Path(sys.executable).with_name("agent-eval"))
ENDS_WITHIN_S = 250.0  # sooner than the time a test has, so that the output is not lost
_LONGEST_CALL = 1 << 20
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
    argv = [COMMAND, *map(str, words)]
    environ = dict(os.environ if env is None else env)
    is_usual = environ.get("PYTHONPATH") == os.environ.get("PYTHONPATH")  # else Python starts as the server did not
    if not is_usual or not hasattr(os, "pidfd_open"):
        return subprocess.run(
            argv,
            cwd=cwd,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ENDS_WITHIN_S,
            check=False,
        )
    return _server().run(argv, str(cwd or Path.cwd()), environ)


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

    def run(self, argv: list[str], cwd: str, env: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
        answers, answering = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        out, out_write = os.pipe()
        err, err_write = os.pipe()
        call = json.dumps([argv, cwd, env, resource.getrlimit(resource.RLIMIT_FSIZE)]).encode()
        with answers:
            socket.send_fds(self._calls, [call], [answering.fileno(), out_write, err_write])
            answering.close()
            os.close(out_write)
            os.close(err_write)
            read = {out: b"", err: b""}
            readers = [threading.Thread(target=self._read, args=(fd, read)) for fd in read]
            for reader in readers:
                reader.start()
            pid = int(answers.recv(64))
            answers.settimeout(ENDS_WITHIN_S)
            try:
                code = int(answers.recv(64))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(argv, ENDS_WITHIN_S) from None
            for reader in readers:
                reader.join()
        return subprocess.CompletedProcess(argv, code, read[out], read[err])

    @staticmethod
    def _read(fd: int, into: dict[int, bytes]) -> None:
        with open(fd, "rb") as stream:
            into[fd] = stream.read()


@functools.cache
def _server() -> _Server:
    return _Server()


class _Exec(BaseException):
    """The command replaces itself by a start of itself, which is what it does in a job: its environment."""


class _Fork(Exception):  # noqa: N818 - raised in a child to leave the server's loop, not to report an error
    """The child's call: its JSON, and the descriptors of its two streams."""


def _serve(calls: socket.socket) -> None:
    """Fork per call until the client is gone; answer with the child's number, then with how it ended."""
    running: dict[int, tuple[int, int]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(calls, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == calls.fileno():
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


def _become(call: bytes, out: int, err: int) -> None:
    """Be what a start of the command with this call would have been."""
    argv, cwd, environ, file_size = json.loads(call)
    resource.setrlimit(resource.RLIMIT_FSIZE, file_size)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.chdir(cwd)
    _set_environ(environ)
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
    # One worker to begin with, as on one core: tests run side by side, and importing google-adk is most of a run.
    importlib.import_module("agent_eval_action.agents.adk")._USUAL_WORKERS = 1
    assert threading.active_count() == 1, "a fork has the main thread only"
    gc.collect()
    gc.freeze()  # so that children do not write to, and copy, every page
    try:
        _serve(socket.socket(fileno=int(sys.argv[1])))
    except _Fork as fork:
        _become(*fork.args)
    else:
        return
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


def _descendants(base: type[Any]) -> Iterator[type[Any]]:
    for model in base.__subclasses__():
        yield model
        yield from _descendants(model)


if __name__ == "__main__":
    _main()
