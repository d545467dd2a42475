"""The entry point of ``agent-eval``, which turns every exception into a message and an exit code."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Any

from agent_eval_action.errors import AgentEvalError, ExitCode, OutputError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def main() -> None:
    """Run ``agent-eval`` and exit with its code."""
    from agent_eval_action.sandbox.container_init import supervise

    supervise(print_step_error)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the parent process closed it
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - until the process ends
    signal.signal(signal.SIGTERM, _interrupt)  # as SIGINT does, until a run installs its own handlers
    try:
        if sys.argv[1:2] == ["run"]:
            _begin_run()
        code = _run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = ExitCode.INTERRUPTED
    code = _flush_output(code)
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        os._exit(code)  # threads of an interrupted run: Python would join them, and a download may take minutes
    gc.freeze()  # spares several garbage collections over all objects of the run at interpreter exit
    sys.exit(code)


def print_step_error(sentence: str) -> None:
    """Print an error annotation. The container's first process calls this too, so it imports no CI module."""
    text = sentence.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    print(f"::error title=agent-eval::{text}", flush=True)


def _begin_run() -> None:
    """Start work before the imports of a run, which take half a second, and several on a busy machine."""
    if os.environ.get("CI") and not {"-q", "--quiet"} & set(sys.argv):
        from agent_eval_action import __version__

        print(f"agent-eval {__version__}", file=sys.stderr, flush=True)
    from agent_eval_action.environments.build import restore_ahead

    restore_ahead(os.environ)


def _run() -> int:
    if any(name.startswith("INPUT_") for name in os.environ):
        from agent_eval_action.config.options import given_credentials

        # judges and agents read credentials from the models' own variables, so inputs are copied there
        os.environ.update(given_credentials(os.environ))
    # We use no pydantic plugins; searching for them reads the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # A run makes many long-lived objects: at Python's default threshold of 700 the collector takes a third of its time.
    gc.set_threshold(200_000, 50, 100)
    gc.freeze()
    from agent_eval_action.cli import log

    log.guard_streams()
    from agent_eval_action.cli.app import app, forget_other_commands

    forget_other_commands(sys.argv[1:2])
    try:
        app()
    except SystemExit as ended:  # typer's own: usage errors, --help, typer.Exit
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BrokenPipeError:  # the reader closed the pipe, perhaps before the verdict
        return ExitCode.INCONCLUSIVE
    except Exception as error:  # noqa: BLE001 - the last catch of the process
        if isinstance(error, OSError) and error.errno in _NO_ROOM:  # files have errors of their own: this is stdout
            error = OutputError(f"the output cannot be written: {error.strerror}")
        code = error.exit_code if isinstance(error, AgentEvalError) else ExitCode.BUG
        with contextlib.suppress(OSError):
            _report(error)
        return code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        log.error("the run was interrupted")
        _print_json({"message": "interrupted", "exit_code": int(ExitCode.INTERRUPTED)})
        return ExitCode.INTERRUPTED
    return ExitCode.PASS


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _report(error: Exception) -> None:
    from agent_eval_action.cli import log

    if isinstance(error, AgentEvalError):
        text = f"error: {log.redaction.text(str(error))}"
        if sys.stderr.isatty():  # otherwise lines are not wrapped, and rich is not imported
            log.print_line(text, lines=True, limit=20_000)
        else:
            print(log.terminal(text, 20_000, lines=True), file=sys.stderr)
        log.no_verdict(str(error))
        _print_json(error.fields)
        return
    import platform

    from agent_eval_action import __version__

    # formatted as an issue: what a maintainer needs, without values of the environment
    issue = (
        "This is a defect of agent-eval, not of your agent. Please open an issue with the text below.\n\n"
        f"### Version\nagent-eval-action {__version__}, Python {platform.python_version()}, {platform.platform()}\n\n"
        f"### Command\n`agent-eval {' '.join(sys.argv[1:])}`\n\n"
        f"### Traceback\n```\n{log.traceback_lines(traceback.format_exc().rstrip())}\n```"
    )
    # the traceback may quote an agent's text
    print(log.terminal(log.redaction.text(issue), 100_000, lines=True), file=sys.stderr)
    log.error(f"a defect of agent-eval, not of your agent: {type(error).__name__}: {error}")
    _print_json({"message": f"{type(error).__name__}: {error}", "exit_code": int(ExitCode.BUG)})


def _print_json(error: Mapping[str, Any]) -> None:
    """Print the error on stdout too if the caller asked for JSON."""
    if "--json" in sys.argv:
        import json

        from agent_eval_action.cli import log

        print(json.dumps({"error": log.redaction.value(dict(error))}, indent=1))


def _flush_output(code: int) -> int:
    """Flush stdout and stderr now: if that failed at interpreter exit, the exit code would become 120."""
    from agent_eval_action.cli import log

    with contextlib.suppress(OSError):
        log.end_lines()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            # redirect to /dev/null, so that Python's own flush at exit succeeds
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if stream is sys.stdout and error.errno in _NO_ROOM:
                print(f"error: the output cannot be written: {error.strerror}", file=sys.stderr)
                code = code or ExitCode.INCONCLUSIVE
    return code
