"""What a run's attempts may spend: each is paid for before it begins, as far as that can be known."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent_eval_action.llm.agent_use import agent_calls
from agent_eval_action.llm.budget import Amount, Meter
from agent_eval_action.model.result import Attempt


@dataclass
class Spending:
    """The attempts' side of the run's meter, which judges count on as well.

    An attempt is expected to come to what the attempts before it came to; the first ones to a call a turn.
    """

    meter: Meter = field(default_factory=Meter)
    _made: int = 0
    _total: Amount = field(default_factory=Amount)

    async def begin(self, turns: int) -> Amount | None:
        """Set aside what an attempt may take; None: a limit is met, nothing more is made. ``end`` must follow."""
        made, total = self._made, self._total
        estimate = Amount(max(1, turns))
        if made:
            estimate = Amount(max(1, -(-total.calls // made)), total.tokens // made, total.usd / made)
        return None if await self.meter.reserve(estimate) else estimate

    def end(self, estimate: Amount, spent: Amount) -> None:
        """The attempt is made."""
        self._made += 1
        self._total += spent
        self.meter.settle(estimate, spent)

    def count(self, attempt: Attempt, model: str = "") -> Amount:
        """Count one try of an attempt, also one that failed. ``model``: of calls that do not say theirs."""
        return self.meter.agent(agent_calls(attempt.turns), model)

    def met(self) -> str:
        """The limit that is met, in words; "" while there is none."""
        return self.meter.met()
