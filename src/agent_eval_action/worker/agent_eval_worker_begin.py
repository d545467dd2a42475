"""What every program of the worker does before foreign code runs: its pipe, its streams, its stack on request."""

from __future__ import annotations

import faulthandler
import io
import os
import signal
import sys
from pathlib import Path

from agent_eval_worker_pipe import Channel


def begin() -> Channel:
    """The channel to our starter. Import everything of ours before: our folder is off the path afterwards."""
    here = Path(__file__).resolve().parent
    channel = Channel(int(sys.argv[1]), int(sys.argv[2]))
    # Foreign code sees neither our folder nor our arguments.
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != here]
    sys.argv = sys.argv[:1]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    crash = os.fdopen(os.dup(2), "w")
    faulthandler.enable(file=crash)
    # Works while foreign code holds the GIL, when no thread of ours can say what it does.
    faulthandler.register(signal.SIGUSR2, file=crash, all_threads=True)
    return channel
