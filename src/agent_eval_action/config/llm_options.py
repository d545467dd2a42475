"""The options about models that judge and play users: the section ``llm`` of agent-eval.yaml."""

from __future__ import annotations

from typing import Final

from agent_eval_action.config.llm_values import PRICES, RATES
from agent_eval_action.config.option import Option
from agent_eval_action.config.values import BOOLEAN, DURATION, TEXT, integer

LLM_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "llm_concurrency",
        integer(1, 10_000),
        "Calls at once of one model that judges; fewer are made while it answers that it is asked too much.",
        "llm.concurrency",
        default=96,
        shown="`96`",
        metavar="N",
    ),
    Option(
        "llm_requests_per_minute",
        RATES,
        "Most requests a minute to a model that judges: one number, or one per model.",
        "llm.requests_per_minute",
        default={},
        shown="what the server lets through",
        metavar="N|MODEL=N",
        repeatable=True,
    ),
    Option(
        "llm_tokens_per_minute",
        RATES,
        "Most tokens a minute of a model that judges: one number, or one per model.",
        "llm.tokens_per_minute",
        default={},
        shown="what the server lets through",
        metavar="N|MODEL=N",
        repeatable=True,
    ),
    Option(
        "llm_timeout_s",
        DURATION,
        "Longest time of one try of a call to a model that judges.",
        "llm.timeout_s",
        default=60.0,
        shown="`60`",
        metavar="DURATION",
    ),
    Option(
        "llm_retry_deadline",
        DURATION,
        "Longest time that tries of one call and the waits between them may take together.",
        "llm.retry_deadline",
        default=120.0,
        shown="`2m`",
        metavar="DURATION",
    ),
    Option(
        "llm_cache",
        BOOLEAN,
        "Whether judges' answers are kept and used again; runs that write history never use kept ones.",
        "llm.cache",
        default=True,
        shown="`true`",
        switch="--no-cache",
    ),
    Option(
        "llm_prices",
        PRICES,
        "Prices of models in USD per million tokens (input, output, cached_input), over those that are known.",
        "llm.prices",
        default={},
        shown="list prices of common models",
        has_flag=False,
    ),
    Option(
        "llm_openai_base_url",
        TEXT,
        "Address of the server that judges named openai/MODEL are asked at.",
        "llm.openai_base_url",
        shown="`OPENAI_BASE_URL`, else OpenAI",
        metavar="URL",
    ),
)
