"""A server as a process: prints its URL as the first line and serves until it is ended."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.model_server.faults import RateLimit
from support.model_server.server import ModelServer


def serve(prog: str, kind: type[ModelServer], answers: Callable[[Path], Callable[[Any], Any]], script: str) -> None:
    """Parse the command line and serve. ``answers`` reads the file of ``--script``, which ``script`` describes."""
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    parser.add_argument("--script", type=Path, required=True, help=script)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--faults", default="[]", help="JSON list of faults")
    parser.add_argument("--per-second", type=float, default=None, help="answer 429 beyond this many requests a second")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    server = kind(
        answers(given.script),
        latency=given.latency,
        faults=[kind.fault(**fault) for fault in json.loads(given.faults)],
        limit=RateLimit(given.per_second),
    )
    try:
        asyncio.run(_listen(server, given.port))
    except KeyboardInterrupt:
        return


async def _listen(server: ModelServer, port: int) -> None:
    listening, url = await server.start(port=port)
    print(url, flush=True)  # noqa: T201 - whoever started the process reads its address there
    async with listening:
        await listening.serve_forever()
