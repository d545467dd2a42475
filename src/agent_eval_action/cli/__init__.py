"""The command: its entry point, and what becomes of everything that is raised."""

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
    """Run the command ``agent-eval`` and turn what it raises into an exit code."""
    from agent_eval_action.sandbox.container_init import supervise

    supervise(print_step_error)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed for this process
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - until the process ends
    signal.signal(signal.SIGTERM, _interrupt)  # as SIGINT, until a run listens to both itself
    try:
        if sys.argv[1:2] == ["run"]:
            _begin_run()
        code = _run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = ExitCode.INTERRUPTED
    code = _flushed(code)
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        os._exit(code)  # threads of an interrupted run: Python would wait for them, a download for minutes
    gc.freeze()  # as it ends, Python looks through all objects of a run for garbage, several times
    sys.exit(code)


def print_step_error(sentence: str) -> None:
    """Print an annotation of the step. The first process does so when nothing else runs, so it imports no CI module."""
    text = sentence.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    print(f"::error title=agent-eval::{text}", flush=True)


def _begin_run() -> None:
    """What need not wait for the imports of a run, which take half a second, and several on a busy machine."""
    if os.environ.get("CI") and not {"-q", "--quiet"} & set(sys.argv):
        from agent_eval_action import __version__

        print(f"agent-eval {__version__}", file=sys.stderr, flush=True)
    from agent_eval_action.environments.archive import restore_ahead

    restore_ahead(os.environ)


def _run() -> int:
    if any(name.startswith("INPUT_") for name in os.environ):
        from agent_eval_action.config.options import given_credentials

        # judges and agents read the models' own variables, whichever way their values came
        os.environ.update(given_credentials(os.environ))
    # No plugin of pydantic is ours; looking for some reads the metadata of every package installed.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # A run makes many objects that stay: at Python's default of 700 the collector takes a third of a large run.
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
    except BrokenPipeError:  # whoever reads has read enough, and there may have been no verdict yet
        return ExitCode.INCONCLUSIVE
    except Exception as error:  # noqa: BLE001 - the last catch of the process
        if isinstance(error, OSError) and error.errno in _NO_ROOM:  # stdout, for files have errors of their own
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
        text = f"error: {log.terminal(log.redaction.text(str(error)), 20_000, lines=True)}"
        if sys.stderr.isatty():  # else every line stays whole, and what draws is not imported
            from agent_eval_action.cli.log import print_line

            print_line(text, lines=True, limit=20_000)
        else:
            print(text, file=sys.stderr)
        log.no_verdict(str(error))
        _print_json(error.fields)
        return
    import platform

    from agent_eval_action import __version__

    # the shape of an issue: what a maintainer needs and nothing of the environment's values
    issue = (
        "This is a defect of agent-eval, not of your agent. Please open an issue with the text below.\n\n"
        f"### Version\nagent-eval-action {__version__}, Python {platform.python_version()}, {platform.platform()}\n\n"
        f"### Command\n`agent-eval {' '.join(sys.argv[1:])}`\n\n"
        f"### Traceback\n```\n{log.traceback_lines(traceback.format_exc().rstrip())}\n```"
    )
    # what broke may be about an agent's text, which is then in the traceback
    print(log.terminal(log.redaction.text(issue), 100_000, lines=True), file=sys.stderr)
    log.error(f"a defect of agent-eval, not of your agent: {type(error).__name__}: {error}")
    _print_json({"message": f"{type(error).__name__}: {error}", "exit_code": int(ExitCode.BUG)})


def _print_json(error: Mapping[str, Any]) -> None:
    """Print an error on stdout too, where the caller asked for JSON and has got none."""
    if "--json" in sys.argv:
        import json

        from agent_eval_action.cli import log

        print(json.dumps({"error": log.redaction.value(dict(error))}, indent=1))


def _flushed(code: int) -> int:
    """Flush now: an error while Python flushes at exit would change the exit code to 120."""
    from agent_eval_action.cli import log

    with contextlib.suppress(OSError):
        log.end_lines()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            # the reader is gone; give Python something it can flush
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if stream is sys.stdout and error.errno in _NO_ROOM:
                print(f"error: the output cannot be written: {error.strerror}", file=sys.stderr)
                code = code or ExitCode.INCONCLUSIVE
    return code
