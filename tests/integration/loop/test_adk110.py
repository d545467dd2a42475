"""The control on the oldest google-adk we run: what a change breaks, and what main has broken already."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ONE = "players_own_die"
BREAK = (
    '    if sides == 12 and tool_context.state.get("own_die"):\n'
    '        return {"error": "no such die"}\n'
)  # fmt: skip


@pytest.fixture
def dice(repository: Callable[[Path], Any], adk110_python: Path) -> Any:
    return repository(adk110_python)


@pytest.mark.adk110
def test_a_broken_case_is_confirmed_by_the_base_commits_agent(dice: Any) -> None:
    dice.branch()
    dice.change(BREAK)
    dice.commit("break one case")
    ended = dice.run()
    assert ended.code == 1, ended.said
    assert ended.extra() == {ONE: 3}
    assert {score["score"] for one in ended.case(ONE)["control"] for score in one["scores"]} == {1.0}
    assert ended.results["base"]["commit"] == dice.git("rev-parse", "main")
    assert ended.results["base"]["agents"][0]["adk_version"].startswith("1.10.")
    assert dice.trees() == []


@pytest.mark.adk110
def test_what_main_has_broken_already_does_not_block(dice: Any) -> None:
    dice.change(BREAK)
    dice.commit("main breaks")
    dice.branch()
    (dice.folder / "README.md").write_text("another word\n")
    dice.commit("a harmless change")
    ended = dice.run()
    assert ended.code == 0, ended.said
    assert len(ended.case(ONE)["control"]) == 3
    kinds = {pair["kind"] for pair in ended.results["decision"]["pairs"] if pair["case"] == ONE}
    assert "on_main" in kinds, ended.said
