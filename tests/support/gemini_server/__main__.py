"""Run the server as a process: prints its URL as the first line and serves until it is ended."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
from pathlib import Path

from support.gemini_server.faults import Fault, RateLimit
from support.gemini_server.script import Answer, Script
from support.gemini_server.server import GeminiServer


def _answer(path: Path) -> Answer:
    """Rules from JSON, or the function ``answer`` of a Python file."""
    if path.suffix == ".json":
        return Script(json.loads(path.read_text())["rules"])
    spec = importlib.util.spec_from_file_location("gemini_answers", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"not a Python file: {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    answer: Answer = module.answer
    return answer


async def _serve(arguments: argparse.Namespace) -> None:
    gemini = GeminiServer(
        answer=_answer(arguments.script),
        latency=arguments.latency,
        faults=[Fault(**fault) for fault in json.loads(arguments.faults)],
        limit=RateLimit(arguments.per_second),
    )
    server, url = await gemini.start(port=arguments.port)
    print(url, flush=True)  # noqa: T201 - whoever started the process reads its address there
    async with server:
        await server.serve_forever()


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="gemini_server", description=__doc__)
    parser.add_argument("--script", type=Path, required=True, help="rules.json, or a .py with answer(request) -> Reply")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--faults", default="[]", help="JSON list of faults")
    parser.add_argument("--per-second", type=float, default=None, help="answer 429 beyond this many requests a second")
    parser.add_argument("--port", type=int, default=0)
    try:
        asyncio.run(_serve(parser.parse_args()))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
