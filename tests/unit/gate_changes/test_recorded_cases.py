"""Cases that a change replaces by a recording, or by another one, while what they expect becomes only stricter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.config.loader import resolve
from agent_eval_action.gate_changes.diff import weakenings
from agent_eval_action.gate_changes.snapshot import BaseSnapshot, CommandContext, Snapshot, read_base
from support.repositories import commit_all


def chat(answer: str, **fields: Any) -> dict[str, Any]:
    """A case of trpc-agent."""
    turn = {"userContent": {"role": "user", "content": "Hi"}, "finalResponse": {"role": "assistant", "content": answer}}
    more = {name: [turn] if value is ... else value for name, value in fields.items()}
    return {"evalSetId": "s", "evalCases": [{"evalId": "a", "conversation": [turn], **more}]}


def dataset(answer: str, **fields: Any) -> dict[str, Any]:
    """A case of agents-cli."""
    prompt, reference = ({"parts": [{"text": text}]} for text in ("Hi", answer))
    return {"eval_cases": [{"eval_case_id": "a", "prompt": prompt, "reference": {"response": reference}, **fields}]}


def trace(answer: str) -> dict[str, Any]:
    return {"turns": [{"events": [{"author": "bot", "content": {"parts": [{"text": answer}]}}]}]}


def session(answer: str, reply: str = "") -> dict[str, Any]:
    """A fixture of `adk test`; ``reply`` is what a tool answered."""
    part = {"functionResponse": {"id": "1", "name": "look", "response": {"result": reply}}}
    parts = [("user", "user", {"text": "Hi"}), ("bot", "user", part), ("bot", "model", {"text": answer})]
    return {"events": [{"author": by, "content": {"role": role, "parts": [part]}} for by, role, part in parts]}


@pytest.fixture
def snapshot(tmp_path: Path):
    """What a commit with this eval file measures by."""

    def read(name: str, value: dict[str, Any]) -> Snapshot:
        files = {"bot/agent.py": "root_agent = None\n", "agent-eval.yaml": f"agent: {{path: bot, evals: [{name}]}}\n"}
        for path, text in {**files, name: json.dumps(value)}.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        commit_all(tmp_path)
        settings = resolve(flags={}, environ={}, cwd=tmp_path).settings
        base = read_base(settings, CommandContext({}, {}, tmp_path, base="HEAD"))
        assert isinstance(base, BaseSnapshot), base
        return base.snapshot

    return read


@pytest.mark.parametrize(
    ("name", "before", "after", "edits"),
    [
        ("s.evalset.json", chat("Hello"), chat("Hello you", evalMode="trace", actualConversation=...), ["recorded"]),
        ("s.json", dataset("Hello"), dataset("Hello you", agent_data=trace("Hello you")), ["recorded"]),
        ("s.json", dataset("A", agent_data=trace("A")), dataset("A b", agent_data=trace("A b")), ["definition"]),
        ("s.json", dataset("Hello", context="x"), dataset("Hello you"), ["definition"]),
        ("bot/tests/s.json", session("Hello", "x"), session("Hello you", "y"), ["definition"]),
        ("s.evalset.json", chat("Hello"), chat("Hello you"), None),
        ("s.json", dataset("Hello", context="x"), dataset("Hello you", context="x"), None),
    ],
)
def test_a_stricter_answer_hides_no_recording(snapshot, name, before, after, edits):
    found = weakenings(snapshot(name, before), snapshot(name, after))
    assert [[edit["edit"] for edit in one.data["edits"]] for one in found] == ([edits] if edits else [])
