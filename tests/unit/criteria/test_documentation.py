"""docs/criteria.md matches the code (tables, examples), and the tests that tests/parity/README.md names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_eval_action.config.criteria_files import load_criteria_file
from agent_eval_action.criteria import CRITERIA, build
from agent_eval_action.criteria.judge import JudgeModelOptions

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "criteria.md").read_text(encoding="utf-8")
DIFFERENCES = (ROOT / "tests" / "parity" / "README.md").read_text(encoding="utf-8")


def test_every_criterion_has_its_row():
    rows = {
        cells[0].strip("`"): cells[1:] for line in PAGE.splitlines() if len(cells := line.strip("| ").split(" | ")) >= 5
    }
    assert CRITERIA.keys() == rows.keys() - {"criterion"}
    for name, kind in CRITERIA.items():
        goal, scale, threshold, reference, *options = rows[name]
        assert goal == ("lower" if kind.goal == "minimize" else "higher")
        assert (scale == "0 to 1") is (kind.scale == (0, 1))
        assert threshold == ("optional" if kind.goal == "minimize" else "required")
        assert (reference.strip(" |") == "yes") is kind.needs_reference
        said = " ".join(options)
        fields = {key: field.default for key, field in kind.model_fields.items() if key != "threshold"}
        assert set(re.findall(r"(?<!\()`(\w+)`", said)) == fields.keys(), name
        stated = dict(re.findall(r"`(\w+)` \(`([^`]+)`\)", said))
        plain = {key: value for key, value in fields.items() if isinstance(value, bool | int | float | str)}
        assert {key: value.lower() for key, value in stated.items()} == {
            key: str(value).lower() for key, value in plain.items()
        }


def test_every_option_of_a_judge_has_its_row():
    rows = re.findall(r"^\| `(\w+)` \| `?([^|`]+)`? \|", PAGE, re.MULTILINE)
    stated = {key: default.strip() for key, default in rows if key in JudgeModelOptions.model_fields}
    assert stated == {key: str(field.default).lower() for key, field in JudgeModelOptions.model_fields.items()}


@pytest.mark.parametrize("language", ["json", "yaml"])
def test_examples_load(tmp_path, language):
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert blocks
    (tmp_path / "response_quality.py").write_text("def evaluate(instance):\n    return 4\n")
    for block in blocks:
        path = tmp_path / f"criteria.{language}"
        path.write_text(block, encoding="utf-8")
        assert build(load_criteria_file(path, workspace=tmp_path).specs)


def test_every_test_of_a_difference_exists():
    named = set(re.findall(r"`(test_\w+)`", DIFFERENCES))
    files = set(re.findall(r"`(tests/[\w/]+\.py)`", DIFFERENCES))
    defined = {
        name for file in files for name in re.findall(r"^def (test_\w+)", (ROOT / file).read_text(), re.MULTILINE)
    }
    assert len(named) > 40
    assert named <= defined
