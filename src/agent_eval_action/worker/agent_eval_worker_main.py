"""Entry of both programs: ``python agent_eval_worker_main.py READ_FD WRITE_FD agent|metrics``.

Nothing of ours is imported above: multiprocessing imports this module again in children of foreign code, where our
folder is not on the path.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Import all of ours, then hand over to the program that imports and serves foreign code."""
    from agent_eval_worker_protocol import open_channel

    if sys.argv[3] == "metrics":
        from agent_eval_worker_metrics import serve_metrics as serve
    else:
        from agent_eval_worker_serve import serve_agent as serve
    channel = open_channel()
    init = channel.receive()
    if init is not None:
        serve(channel, init)


if __name__ == "__main__":
    main()
