"""schema/agent-eval.schema.json and the table in docs/config.md say what the option table says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from agent_eval_action.config.reference import option_table
from agent_eval_action.config.schema import agent_eval_schema

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "schema" / "agent-eval.schema.json"
PAGE = ROOT / "docs" / "config.md"
TABLE = re.compile(r"(?<=<!-- options -->\n).*?(?=<!-- /options -->)", re.DOTALL)


def tie(path: Path, text: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, "the table of options changed: pytest --update-golden"


def test_the_schema_file_is_the_option_table(request):
    tie(SCHEMA, json.dumps(agent_eval_schema(), indent=2, ensure_ascii=False) + "\n", request)


def test_the_page_holds_the_option_table(request):
    page = PAGE.read_text(encoding="utf-8")
    assert TABLE.search(page), "docs/config.md has no place for the table"
    tie(PAGE, TABLE.sub(lambda _: option_table() + "\n", page), request)
