"""Run the server as a process: prints its URL as the first line and serves until it is ended."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from pathlib import Path
from typing import Any

from support.gemini_server.faults import RateLimit
from support.openai_server.faults import Fault
from support.openai_server.messages import Answer, ChatReply, ChatRequest
from support.openai_server.server import OpenAiServer


def rules(path: Path) -> Answer:
    """``{"rules": [{"user": REGEX, "reply": {text, finish_reason, refusal}}]}``: the first that fits answers."""
    known: list[dict[str, Any]] = json.loads(path.read_text())["rules"]

    def answer(request: ChatRequest) -> ChatReply:
        found = next((rule for rule in known if re.search(rule.get("user", ""), request.user_text)), None)
        if found is None:
            raise LookupError(f"no rule for {request.user_text!r}")
        return ChatReply(**found["reply"])

    return answer


async def _serve(arguments: argparse.Namespace) -> None:
    model = OpenAiServer(
        answer=rules(arguments.script),
        latency=arguments.latency,
        faults=[Fault(**fault) for fault in json.loads(arguments.faults)],
        limit=RateLimit(arguments.per_second),
    )
    server, url = await model.start(port=arguments.port)
    print(url, flush=True)  # noqa: T201 - whoever started the process reads its address there
    async with server:
        await server.serve_forever()


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="openai_server", description=__doc__)
    parser.add_argument("--script", type=Path, required=True, help="rules.json")
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
