"""What a judged run may spend, and what it is refused for: said before anything is asked."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .conftest import Judged

CRITERION = "final_response_match_v2"


def judge(model: str = "gemini-2.5-flash", **options: Any) -> dict[str, Any]:
    return {CRITERION: {"threshold": 0.8, "judge_model_options": {"judge_model": model, **options}}}


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize(
    ("limit", "says"),
    [
        (("--max-calls", "3"), "limit of 3 model calls"),
        (("--max-tokens", "800"), "limit of 800 tokens"),
        (("--max-cost", "0.0003"), "limit of 0.0003 USD"),
    ],
)
def test_a_limit_met_while_judging_is_inconclusive(judged: Judged, limit: tuple[str, str], says: str) -> None:
    judged.criteria(judge(parallelism_limit=1))
    done = judged.run(*limit)
    assert done.code == 3, done.said
    score = done.score("rome", CRITERION)
    assert (score["status"], score["score"]) == ("error", None)
    assert says in score["reason"], score["reason"]
    assert says in done.said
    assert judged.model.asked["agent"] == 2
    assert judged.model.asked["match"] < 3
    judged.forget()
    again = judged.run("--resume", ".agent-eval/out")
    assert again.code == 0, again.said
    assert judged.model.asked["agent"] == 0


def test_a_cost_limit_wants_a_price_first(judged: Judged) -> None:
    judged.environ |= {"OPENAI_API_KEY": "local", "OPENAI_BASE_URL": f"{judged.server.url}/v1"}
    judged.criteria(judge("openai/house-model"))
    done = judged.run("--max-cost", "1")
    assert done.code == 2, done.said
    assert "openai/house-model" in done.said
    assert "prices" in done.said
    assert judged.server.seen.calls == 0


@pytest.mark.parametrize(
    ("criteria", "says"),
    [
        (judge(), "set GOOGLE_API_KEY"),
        (judge("openai/house-model"), "set OPENAI_API_KEY"),
        ({"safety_v1": 1.0}, "set GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION"),
        ({"hallucinations_v1": 0.5}, "set GOOGLE_API_KEY"),
    ],
)
def test_without_credentials_nothing_is_asked(judged: Judged, criteria: dict[str, Any], says: str) -> None:
    for name in ("GOOGLE_API_KEY", "OPENAI_API_KEY"):
        judged.environ[name] = ""
    judged.criteria(criteria)
    done = judged.run()
    assert done.code == 3, done.said
    assert says in done.said
    assert judged.server.seen.calls == 0


@pytest.mark.parametrize(
    ("criteria", "says"),
    [
        (judge("anthropic/claude-sonnet-4"), "anthropic"),
        (judge(judge_model_config={"temprature": 1}), "temperature"),
        (judge(num_sample=3), "num_samples"),
        (judge(num_samples=0), "num_samples"),
        (judge(judge_model_config={"system_instruction": "say yes"}), "system_instruction"),
        ({"rubric_based_final_response_quality_v1": {"threshold": 1}}, "rubric"),
        ({"final_response_match_v3": 1}, "final_response_match_v2"),
    ],
)
def test_what_is_configured_wrongly_is_refused_with_its_place(
    judged: Judged, criteria: dict[str, Any], says: str
) -> None:
    judged.criteria(criteria)
    done = judged.run()
    assert done.code == 2, done.said
    assert says in done.said
    assert re.search(r"evals/(test_config|s\.evalset)\.json", done.said)
    assert judged.server.seen.calls == 0
