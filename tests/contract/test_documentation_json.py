"""JSON blocks of the pages are what they seem to be: configs that build, cases that load, options a judge takes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.config.criteria_files import load_criteria_file
from agent_eval_action.criteria import build
from agent_eval_action.formats import load_eval_file

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["README.md", "docs/models.md", "docs/cost.md", "docs/scenarios.md", "docs/reports.md", "docs/config.md"]
BLOCK = re.compile(r"```json\n(.*?)```", re.DOTALL)


def blocks() -> list[Any]:
    found = ((name, number, text) for name in NAMES for number, text in enumerate(BLOCK.findall(_text(name)), 1))
    return [pytest.param(json.loads(text), id=f"{name} {number}") for name, number, text in found]


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_there_are_blocks() -> None:
    assert {"README.md 1", "docs/models.md 1", "docs/scenarios.md 1"} <= {str(block.id) for block in blocks()}


@pytest.mark.parametrize("block", blocks())
def test_a_block_is_accepted_as_what_it_is(block: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "block.json"
    if "eval_id" in block:
        path.write_text(json.dumps({"eval_set_id": "s", "eval_cases": [block]}))
        loaded = load_eval_file(path, workspace=tmp_path)
        assert loaded.warnings == ()
        return
    config = {"criteria": {"final_response_match_v2": {"threshold": 0.5, **block}}}
    path.write_text(json.dumps(block if "criteria" in block else config))
    assert build(load_criteria_file(path, workspace=tmp_path).specs)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([\w-]+))?\)", page.read_text(encoding="utf-8")):
        there = (page.parent / target) if target else page
        assert there.exists(), target
        if anchor:
            assert anchor in _anchors(there), f"{target}#{anchor}"


def _anchors(page: Path) -> set[str]:
    heads = re.findall(r"(?m)^#+ (.+)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_anchors_of_the_readme_are_there() -> None:
    found = re.findall(r"\]\((docs/\w+\.md)#([\w-]+)\)", _text("README.md"))
    assert found
    for page, anchor in found:
        assert anchor in _anchors(ROOT / page), f"{page}#{anchor}"
