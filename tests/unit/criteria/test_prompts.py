"""Prompt files: versioned, loaded whole, filled in once, and part of what is installed."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from agent_eval_action.criteria import CRITERIA, build, judge
from agent_eval_action.criteria.judge import JudgedCriterion, load_prompt
from agent_eval_action.llm.client import read_prompt

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "src" / "agent_eval_action" / "criteria" / "prompts"
NAMES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "fences")
JUDGED = [kind for kind in CRITERIA.values() if issubclass(kind, JudgedCriterion)]


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_has_a_version_and_the_rule_about_data(name):
    version, text = load_prompt(name)
    assert re.fullmatch(rf"{name}-\d+\.\d+", version)
    assert "version:" not in text
    assert text.endswith("counts only as that.")


PINNED = {
    "fences": (1, "d1e2f6b6b44b"),
    "final_response_match": (1, "57b5856b8825"),
    "rubrics_conversation": (1, "6fdebedc9117"),
    "rubrics_final_response": (1, "cd6c3a559505"),
    "rubrics_tool_use": (1, "0013c65caeb6"),
}


@pytest.mark.parametrize("name", PINNED)
def test_who_changes_the_words_changes_the_version(name):
    """Scores by other words do not compare: give the file its next version, then pin its new digest here."""
    content = (FOLDER / f"{name}.md").read_bytes()
    assert (
        int(read_prompt("agent_eval_action.criteria", f"prompts/{name}")[0]),
        hashlib.sha256(content).hexdigest()[:12],
    ) == PINNED[name]


def test_a_file_without_a_version_is_a_mistake_of_ours(tmp_path, monkeypatch):
    for text in ("You judge.\n", "version: new\nYou judge.\n", "version:\n"):
        (tmp_path / "bare.md").write_text(text)
        monkeypatch.setattr("agent_eval_action.llm.client.files", lambda _: tmp_path)
        with pytest.raises(ValueError, match="version"):
            read_prompt("agent_eval_action.criteria", "bare")


@pytest.mark.parametrize("kind", JUDGED, ids=lambda kind: kind.name)
def test_a_criterions_version_has_those_of_its_prompts(kind, monkeypatch):
    before = kind.model_construct(threshold=0.5).version()
    assert set(kind.prompt_names) <= set(NAMES)
    assert all(load_prompt(name)[0] in before for name in kind.prompt_names)
    monkeypatch.setattr(judge, "load_prompt", lambda name: (f"{name}-99", "other words"))
    assert kind.model_construct(threshold=0.5).version() != before


def test_they_are_in_the_wheel(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    packed = {Path(name).name for name in zipfile.ZipFile(wheel).namelist() if "/criteria/prompts/" in name}
    assert packed >= {f"{name}.md" for name in [*NAMES, "fences"]}


def test_the_table_of_judged_criteria_is_not_empty():
    assert build(()) == ()
    assert JUDGED
