"""Options about models: every spelling, every place, and the page's examples."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.config.loader import resolve
from agent_eval_action.config.models import Settings
from agent_eval_action.errors import ConfigError

PAGE = Path(__file__).resolve().parents[3] / "docs" / "cost.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def settled(folder: Path, text: str = "", flags: dict[str, Any] | None = None, **environ: str) -> Settings:
    (folder / "travel_agent").mkdir(exist_ok=True)
    (folder / "travel_agent" / "agent.py").touch()
    (folder / "agent-eval.yaml").write_text(text or "agent: travel_agent\n")
    return resolve(flags=flags or {}, environ=environ, cwd=folder).settings


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_pages_examples_can_be_used(tmp_path: Path, example: str) -> None:
    assert settled(tmp_path, example) != settled(tmp_path)


def test_a_bound_holds_for_every_model_or_for_those_named(tmp_path: Path) -> None:
    one = settled(tmp_path, "llm: {requests_per_minute: 60, tokens_per_minute: {a: 5, openai/b: 6}}")
    assert one.llm.requests_per_minute == {"*": 60}
    assert one.llm.tokens_per_minute == {"a": 5, "openai/b": 6}
    two = settled(tmp_path, flags={"llm_requests_per_minute": ["a=5", "b=6"], "llm_tokens_per_minute": ["9"]})
    assert (two.llm.requests_per_minute, two.llm.tokens_per_minute) == ({"a": 5, "b": 6}, {"*": 9})


def test_prices_as_text_have_their_parts_in_order(tmp_path: Path) -> None:
    found = settled(tmp_path, **{"INPUT_LLM-PRICES": "openai/a=0.2/0.8\nb=1/0.1/2", "INPUT_MAX-COST": "2.5"})
    assert {model: price.model_dump(exclude_none=True) for model, price in found.llm.prices.items()} == {
        "openai/a": {"input": 0.2, "output": 0.8},
        "b": {"input": 1.0, "cached_input": 0.1, "output": 2.0},
    }
    assert found.max_cost == 2.5


def test_the_switch_wins_over_the_file(tmp_path: Path) -> None:
    assert settled(tmp_path, "llm: {cache: true}", {"llm_cache": "false"}).llm.cache is False


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_cost: 0", "must be an amount of USD"),
        ("max_cost: '2'", "must be an amount of USD"),
        ("llm: {prices: {a: 3}}", "must be a price like {input: 0.30, output: 2.50}"),
        ("llm: {prices: {a: {input: 1}}}", "`output` is required"),
        ("llm: {prices: {a: {input: 1, output: -1}}}", "must be USD per million tokens"),
        ("llm: {prices: {a: {input: 1, output: 1, inptu: 1}}}", "unknown key `inptu`"),
        ("llm: {prices: [a]}", "must map models to their price"),
        ("llm: {requests_per_minute: 0}", "must be a whole number"),
        ("llm: {requests_per_minute: {a: many}}", "must be a whole number"),
        ("llm: {requests_per_minute: {'': 4}}", "is no name of a model"),
    ],
)
def test_what_cannot_be_used_is_reported_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settled(tmp_path, text)
    (problem,) = refused.value.problems
    assert said in problem.message
    assert problem.line == 1


@pytest.mark.parametrize("text", ["a=1", "a=1/2/3/4", "=1/2", "a=x/2"])
def test_prices_that_are_no_text_of_prices_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        settled(tmp_path, INPUT_LLM_PRICES=text)
