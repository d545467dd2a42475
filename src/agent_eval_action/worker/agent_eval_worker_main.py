"""Entry point: ``agent_eval_worker_main.py READ_FD WRITE_FD agent|metrics``, or ``SOCKET_FD`` for a fork server.

No module of ours is imported at the top: multiprocessing imports this one again in children of foreign code, where our
folder is not on the path.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Import all our modules, then start the program that imports and serves foreign code."""
    from agent_eval_worker_metrics import serve_metrics
    from agent_eval_worker_protocol import open_channel
    from agent_eval_worker_serve import Worker

    if len(sys.argv) == 2:  # noqa: PLR2004 - the socket alone
        import socket

        from agent_eval_worker_fork_server import serve_forks

        request = serve_forks(socket.socket(fileno=int(sys.argv[1])))
        read_fd, write_fd, program = *request.fds[:2], request.program
    else:
        read_fd, write_fd, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    channel = open_channel(read_fd, write_fd)
    init = channel.receive()
    if init is not None and program == "metrics":
        serve_metrics(channel, init)
    elif init is not None:
        Worker(channel, init).run()


if __name__ == "__main__":
    main()
