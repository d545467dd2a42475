"""What models were asked and what it cost: a line, and a table by purpose."""

from __future__ import annotations

from agent_eval_action.model.judged import ModelUse
from agent_eval_action.model.result import Totals
from agent_eval_action.reports import format as fmt

AGENT = "agent"
USER = "user_simulator"


def cost_text(totals: Totals) -> str:
    """``$0.0412``, with "at least" where calls have no known price; "" where nothing is priced."""
    if totals.usd is None:
        return ""
    partial = any(use.unpriced for use in totals.uses)
    return f"{'at least ' if partial else ''}{fmt.number(totals.usd, 'usd')}"


def judge_calls(totals: Totals) -> str:
    """``240 judge calls, 12 more from the cache``; "" without any."""
    mine = [use for use in totals.uses if use.purpose != AGENT]
    calls, cached = sum(use.calls for use in mine), sum(use.cached for use in mine)
    if not calls + cached:
        return ""
    users = any(use.purpose == USER for use in mine)
    said = fmt.plural(calls, "judge and user call" if users else "judge call")
    return f"{said}, {fmt.count(cached)} more from the cache" if cached else said


def agent_tokens(totals: Totals) -> str:
    """``1,080 tokens``, and whose where judges have some too; "" where nobody reported any."""
    if totals.usage.total_tokens is None:
        return ""
    least = "at least " if totals.usage.calls_without_usage else ""
    whose = "agent tokens" if any(use.purpose != AGENT for use in totals.uses) else "tokens"
    return f"{least}{fmt.count(totals.usage.total_tokens)} {whose}"


COLUMNS = ("Asked for", "Model", "Calls", "Cached", "Tokens in", "Tokens out", "Cost")


def cost_rows(totals: Totals) -> list[tuple[str, ...]]:
    """One row per purpose and model, the dearest first; cells are plain text in the order of ``COLUMNS``."""
    in_order = sorted(totals.uses, key=lambda use: (-(use.usd or 0.0), -use.calls, use.purpose, use.model))
    return [_row(use) for use in in_order]


def _row(use: ModelUse) -> tuple[str, ...]:
    least = "≥ " if use.calls_without_usage else ""
    failed = f" ({fmt.count(use.failed)} failed)" if use.failed else ""
    price = fmt.NONE if use.usd is None else f"{'≥ ' if use.unpriced else ''}{fmt.number(use.usd, 'usd')}"
    return (
        use.purpose,
        use.model,
        fmt.count(use.calls) + failed,
        fmt.count(use.cached),
        least + fmt.count(use.input_tokens),
        least + fmt.count(use.output_tokens),
        price,
    )
