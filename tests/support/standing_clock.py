"""Time that passes when somebody sleeps, and not otherwise: an hour's wait is done at once."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from agent_eval_action.ci.host import Clock


@dataclass
class StandingClock:
    """``slept`` has every wait, in seconds."""

    slept: list[float] = field(default_factory=list)

    def clock(self) -> Clock:
        began = time.time()
        return Clock(now=lambda: sum(self.slept), wall=lambda: began + sum(self.slept), sleep=self.slept.append)
