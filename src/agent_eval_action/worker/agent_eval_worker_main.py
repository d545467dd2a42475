"""Entry of the worker: ``python agent_eval_worker_main.py READ_FD WRITE_FD``. Imports the agent, serves sessions."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Set up what must be there before the agent's code runs, then serve until told to stop."""
    here = Path(__file__).resolve().parent
    import faulthandler
    import io
    import signal

    from agent_eval_worker_pipe import Channel
    from agent_eval_worker_serve import Worker

    channel = Channel(int(sys.argv[1]), int(sys.argv[2]))
    # The agent sees neither our folder nor our arguments.
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != here]
    sys.argv = sys.argv[:1]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    crash = os.fdopen(os.dup(2), "w")
    faulthandler.enable(file=crash)
    # Works while the agent holds the GIL, when no thread of ours can say what it does.
    faulthandler.register(signal.SIGUSR2, file=crash, all_threads=True)
    init = channel.receive()
    if init is not None:
        Worker(channel, init).run()


if __name__ == "__main__":
    # Guarded: multiprocessing imports this module again in the agent's own children.
    main()
