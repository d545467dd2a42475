"""The words a user is played with: their version is part of a case's digest, so they change together."""

from __future__ import annotations

import hashlib
from importlib.resources import files

import pytest

from agent_eval_action import agents
from agent_eval_action.llm import client

PINNED = ("1", "650e51ffa027")


def test_who_changes_the_words_changes_the_version():
    """Conversations led by other words do not compare: give the file its next version, then pin its digest here."""
    content = files(agents).joinpath("user_simulator.md").read_bytes()
    version, _ = client.read_prompt("agent_eval_action.agents", "user_simulator")
    assert (version, hashlib.sha256(content).hexdigest()[:12]) == PINNED


def test_every_part_is_there_and_its_places_are_known():
    _, text = client.read_prompt("agent_eval_action.agents", "user_simulator")
    _, system, message = text.split("=== ")
    assert [{word for word in part.split() if word.isidentifier() and "_" in word} for part in (system, message)] == [
        {"stop_signal", "conversation_plan"},
        {"stop_signal", "conversation_history"},
    ]


def test_a_file_without_a_version_is_a_mistake_of_ours(tmp_path, monkeypatch):
    (tmp_path / "bare.md").write_text("=== system\nYou play.\n")
    monkeypatch.setattr(client, "files", lambda _: tmp_path)
    with pytest.raises(ValueError, match=r"bare\.md does not begin with its version"):
        client.read_prompt("anything", "bare")
