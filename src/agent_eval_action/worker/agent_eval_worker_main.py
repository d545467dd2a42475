"""Entry of the worker: ``python agent_eval_worker_main.py READ_FD WRITE_FD``. Imports the agent, serves sessions."""

from __future__ import annotations


def main() -> None:
    """Set up what must be there before the agent's code runs, then serve until told to stop."""
    from agent_eval_worker_begin import begin
    from agent_eval_worker_serve import Worker

    channel = begin()
    init = channel.receive()
    if init is not None:
        Worker(channel, init).run()


if __name__ == "__main__":
    # Guarded: multiprocessing imports this module again in the agent's own children.
    main()
