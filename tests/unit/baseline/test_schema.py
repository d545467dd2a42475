"""The published schema: it is what the code reads, and what the code writes is valid by it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from agent_eval_action.baseline.records import baseline_text, from_result
from agent_eval_action.results.history import Record
from agent_eval_action.results.run_result import AgentConditions
from support.results import attempt, calls, case, info, run
from tools.generate import baseline_schema as schema

PUBLISHED = Path(__file__).resolve().parents[3] / "schema" / "baseline.schema.json"


def written():
    agents = (AgentConditions(agent="bot", path="bot", models=("gemini-2.5-flash",), adk_version="2.13.0"),)
    many = [info(f"criterion_{n:03}") for n in range(90)]
    long = case("long", attempt({one.name: 0.5 for one in many}, *([calls(("roll", {"sides": 6}))] * 200)))
    short = case("short", attempt({many[0].name: 1.0}, calls(("roll", {}))))
    return json.loads(baseline_text(from_result(run(long, short, criteria=many, agents=agents))))


def test_what_is_written_is_valid():
    jsonschema.validate(written(), schema())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda doc: doc["records"][0].update(extra=1),
        lambda doc: doc["records"][1]["criteria"]["criterion_000"].update(n=0),
        lambda doc: doc["records"][1]["criteria"]["criterion_000"].update(scores=[[1.0]]),
        lambda doc: doc["records"][0]["trajectory"].pop("digest"),
        lambda doc: doc.pop("created_at"),
    ],
)
def test_what_is_not_a_baseline_is_not_valid(spoil):
    document = written()
    spoil(document)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema())


def test_the_example_of_the_page_is_what_the_code_writes():
    page = (PUBLISHED.parents[1] / "docs" / "baseline.md").read_text()
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    document = json.loads(example)
    jsonschema.validate(document, schema())
    assert baseline_text(Record.model_validate(document)) == example
