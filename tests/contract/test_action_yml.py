"""action.yml offers exactly the options there are, and promises exactly the outputs that are written."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from agent_eval_action.cli import files
from agent_eval_action.config.options import OPTIONS
from agent_eval_action.model.decision import Outcome

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())


def described(option) -> str:
    return option.help + (f" Default: {option.shown}." if option.shown else "")


def test_inputs_are_the_options_in_their_order_and_words():
    assert {name: entry["description"] for name, entry in ACTION["inputs"].items()} == {
        option.input: described(option) for option in OPTIONS
    }
    assert list(ACTION["inputs"]) == [option.input for option in OPTIONS]


def test_no_input_has_a_default_that_would_win_over_the_file():
    for name, entry in ACTION["inputs"].items():
        assert set(entry) == {"description"}, name


@pytest.mark.parametrize("name", ACTION["inputs"])
def test_an_inputs_name_survives_the_runner(name):
    assert re.fullmatch(r"[a-z][a-z0-9-]*", name)
    assert name not in {"args", "entrypoint"}, "without runs.args this would become the container's own"


def test_every_output_promised_is_written_and_no_other(tmp_path, monkeypatch):
    target = tmp_path / "output"
    monkeypatch.setenv("GITHUB_OUTPUT", str(target))
    decided = SimpleNamespace(decision=SimpleNamespace(outcome=Outcome.FAIL, reason="two\nlines"))
    files._outputs(decided, {"results": "r.json", "junit": "j.xml", "markdown": "c.md"})
    written = re.findall(r"^([a-z-]+)<<", target.read_text(), re.MULTILINE)
    assert set(written) == set(ACTION["outputs"])
    assert len(written) == len(set(written))


def test_the_container_is_built_here_and_told_to_run():
    assert ACTION["runs"] == {"using": "docker", "image": "Dockerfile", "args": ["run"]}
    assert ACTION["branding"] == {"icon": "shield", "color": "blue"}
