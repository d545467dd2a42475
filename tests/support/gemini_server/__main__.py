"""Run the server as a process; see ``model_server.command``."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from support.gemini_server.script import Answer, Script
from support.gemini_server.server import GeminiServer
from support.model_server.command import serve


def answers(path: Path) -> Answer:
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


if __name__ == "__main__":
    serve("gemini_server", GeminiServer, answers, "rules.json, or a .py with answer(request) -> Reply")
