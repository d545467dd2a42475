"""The judged criteria of examples/dice, with the agent of the example and a judge of the tests."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from .conftest import Judged

DICE = Path(__file__).parents[3] / "examples" / "dice"


def test_the_examples_judged_criteria_run_as_its_page_says(judged: Judged) -> None:
    made = shutil.ignore_patterns("cache", "out", "__pycache__", ".adk", ".venv")
    judged.root = judged.root.parent / "dice"
    shutil.copytree(DICE, judged.root, ignore=made)
    done = judged.run(
        "--criteria", "judged/test_config.json", "--python", str(judged.python), "--baseline", "none.json"
    )
    assert done.code == 0, done.said
    assert judged.model.asked["agent"] == 0, "the example's agent needs no model"
    asked = {kind for kind, count in judged.model.asked.items() if count}
    assert asked == {"match", "tools", "sentences", "labels"}
    wanted = set(json.loads((DICE / "judged" / "test_config.json").read_text())["criteria"])
    assert {one["name"] for one in done.results["sets"][0]["criteria"]} == wanted
