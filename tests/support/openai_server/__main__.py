"""Run the server as a process; see ``model_server.command``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from support.model_server.command import serve
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


if __name__ == "__main__":
    serve("openai_server", OpenAiServer, rules, "rules.json")
