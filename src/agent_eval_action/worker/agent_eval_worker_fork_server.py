"""Import google-adk once and fork a worker for each request. This process itself never imports an agent.

A request is a packet on a socket: the worker's marker and program as JSON, with four descriptors: the two ends of its
pipes, its output, and a socket for answers. The worker itself answers that it was forked, or the server that it was
not; when the worker has ended, the server answers how. A worker whose answers nobody reads any more is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from agent_eval_worker_load import require_adk

MARKER = "AGENT_EVAL_WORKER"
REQUEST_BYTES = 1 << 12
DESCRIPTORS = 4
PR_SET_DUMPABLE = 4
# Imported by the first turn of any agent with a model; in google-adk 2.x nothing imports these earlier.
MODULES = """
    google.adk.agents.llm_agent google.adk.artifacts.in_memory_artifact_service google.adk.auth.auth_preprocessor
    google.adk.flows.llm_flows.auto_flow google.adk.models.google_llm google.adk.runners
    google.adk.sessions.in_memory_session_service google.adk.tools.agent_tool google.adk.tools.google_search_tool
    google.adk.tools.vertex_ai_search_tool google.adk.workflow._llm_agent_wrapper google.adk.workflow._workflow
    google.auth.aio.credentials httpcore
""".split()  # noqa: SIM905 - a list would take a line for each name
# Models of google.genai.types that every conversation uses. Built here once for all workers, not at their first use.
TYPES = """
    AudioTranscriptionConfig Candidate Content FunctionCall FunctionDeclaration FunctionResponse GenerateContentConfig
    GenerateContentResponse GenerateContentResponseUsageMetadata HttpOptions HttpResponse HttpRetryOptions
    LiveConnectConfig Tool UserContent _GenerateContentParameters
""".split()  # noqa: SIM905 - as above


class Request(NamedTuple):
    """A request to fork a worker. ``fds``: what it reads, what it writes to, and what its output goes to."""

    marker: str
    program: str
    fds: tuple[int, ...]
    answers: socket.socket


class ForkServer:
    """Forks workers until its starter is gone. ``output``: what the import printed, for every worker's log."""

    def __init__(self, control: socket.socket, output: bytes, *, refused: bool) -> None:
        self._control = control
        self._output = output
        self._refused = refused
        self._selector = selectors.DefaultSelector()
        self._workers: dict[socket.socket, tuple[int, int]] = {}  # the pid and a descriptor of it

    def serve(self) -> Request:
        """Return in each forked worker, and never in the server."""
        self._selector.register(self._control, selectors.EVENT_READ, self._on_request)
        while True:
            for key, _ in self._selector.select():
                request = key.data()
                if request is not None:
                    return self._become_worker(request)

    def _on_request(self) -> Request | None:
        """Fork. Returns the request in the worker, None in the server."""
        body, fds, _, _ = socket.recv_fds(self._control, REQUEST_BYTES, DESCRIPTORS)
        if not body:
            self._end()
        request = Request(**json.loads(body), fds=tuple(fds[:3]), answers=socket.socket(fileno=fds[3]))
        pid = None
        if not self._refused:
            with contextlib.suppress(OSError):
                pid = os.fork()
        if pid == 0:
            return request
        for fd in request.fds:
            os.close(fd)
        if pid is None:
            _answer(request.answers, {"forked": False})
            request.answers.close()
        else:
            pid_fd = os.pidfd_open(pid)
            self._workers[request.answers] = pid, pid_fd
            for watched, react in ((pid_fd, self._on_end), (request.answers, self._on_release)):
                self._selector.register(watched, selectors.EVENT_READ, functools.partial(react, request.answers))
        return None

    def _on_end(self, answers: socket.socket) -> None:
        """Answer how a worker ended. It stays a zombie until it is released, so that nobody else gets its pid."""
        if answers in self._workers:
            pid, pid_fd = self._workers[answers]
            self._selector.unregister(pid_fd)
            ended: Any = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            _answer(answers, {"code": ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status})

    def _on_release(self, answers: socket.socket) -> None:
        """Reap a worker whose answers nobody reads any more. Kill it if it still runs."""
        pid, pid_fd = self._workers.pop(answers)
        self._selector.unregister(answers)
        if pid_fd in self._selector.get_map():
            self._selector.unregister(pid_fd)
            for kill in (os.killpg, os.kill):  # it becomes the leader of its group slightly after the fork
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(pid_fd)
        answers.close()

    def _end(self) -> NoReturn:
        for answers in list(self._workers):
            self._on_release(answers)
        os._exit(0)

    def _become_worker(self, request: Request) -> Request:
        """Drop the server's resources, and look from outside like a process started for this worker."""
        self._selector.close()
        self._control.close()
        for answers, (_, pid_fd) in self._workers.items():
            os.close(pid_fd)
            answers.close()
        os.setsid()
        for stream in (1, 2):
            os.dup2(request.fds[2], stream)
        os.close(request.fds[2])
        os.write(2, self._output)
        _set_marker(request.marker)
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        with request.answers:  # the kernel tells the starter who sends this
            _answer(request.answers, {"forked": True})
        return request


def serve_forks(control: socket.socket) -> Request:
    """Import google-adk, then serve requests. Returns in each forked worker, and never in the server."""
    # Workers run as the same user, and must not read or write the memory that other workers are forked from.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    output, refused = _import_adk()
    return ForkServer(control, output, refused=refused).serve()


def _import_adk() -> tuple[bytes, bool]:
    """Return what the import printed, and whether to refuse to fork; a worker that is executed reports why."""
    here, refused = Path(__file__).resolve().parent, False
    ours, sys.path[:] = list(sys.path), [entry for entry in sys.path if Path(entry).resolve() != here]
    printed = os.memfd_create("output")
    for stream in (1, 2):
        os.dup2(printed, stream)
    gc.disable()  # as in the worker
    try:
        require_adk()
        for name in MODULES:
            with contextlib.suppress(ModuleNotFoundError):  # each exists only in some versions
                importlib.import_module(name)
        types = importlib.import_module("google.genai.types")
        for name in TYPES:
            with contextlib.suppress(AttributeError):
                getattr(types, name).model_rebuild()
    except BaseException:  # noqa: BLE001 - whatever an import raises
        refused = True
    sys.path[:] = ours
    gc.freeze()  # so that workers do not write to every page, which would copy it
    gc.enable()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # A fork has only the thread that forks: locks of other threads would never be released.
    refused = refused or len(list(Path("/proc/self/task").iterdir())) > 1
    return os.pread(printed, REQUEST_BYTES, 0), refused


def _set_marker(marker: str) -> None:
    """Overwrite the server's marker where /proc/PID/environ shows it: a worker's strays are found by it."""
    libc: Any = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    libc.getenv.argtypes = [ctypes.c_char_p]
    place = libc.getenv(MARKER.encode())
    if len(marker) != len(os.environ[MARKER]) or not place:
        raise ValueError("the marker of a worker is as long as the server's")
    ctypes.memmove(place, marker.encode(), len(marker))
    os.environ[MARKER] = marker


def _answer(answers: socket.socket, values: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        answers.send(json.dumps(values).encode())
