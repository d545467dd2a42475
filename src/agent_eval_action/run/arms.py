"""Arms: whose agents make attempts. The head's are this change's, the base's those of the commit it is merged onto."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agent_eval_action.agents.base import AgentDriver
from agent_eval_action.model.result import AgentConditions, ArmName, AttemptError

Begun = asyncio.Task[AgentConditions | AttemptError]


@dataclass(frozen=True)
class Arm:
    """Agents that are being started: ``drivers`` and what their ``start`` will say, by agent name.

    ``commit`` is what the agents are of, "" for the checkout itself. ``fixed`` agents can make nothing
    beyond the first pass (a recording). ``missing`` says in one sentence each why agents are not among them; those of
    them that the commit does not have are ``absent``.
    ``release`` gives back what the arm was made of.
    """

    name: ArmName
    drivers: Mapping[str, AgentDriver]
    starts: Mapping[str, Begun]
    commit: str = ""
    fixed: frozenset[str] = frozenset()
    release: Callable[[], None] = field(default=lambda: None)
    missing: Mapping[str, str] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()

    @classmethod
    def begin(
        cls,
        name: ArmName,
        drivers: Mapping[str, AgentDriver],
        *,
        commit: str = "",
        fixed: frozenset[str] = frozenset(),
        release: Callable[[], None] = lambda: None,
        missing: Mapping[str, str] | None = None,
        absent: frozenset[str] = frozenset(),
    ) -> Arm:
        """Start every agent; none is waited for."""
        starts = {agent: asyncio.create_task(driver.start()) for agent, driver in drivers.items()}
        return cls(name, drivers, starts, commit, fixed, release, missing or {}, absent)

    def conditions(self) -> tuple[AgentConditions, ...]:
        """Of the agents that did start."""
        said = [task.result() for task in self.starts.values() if task.done() and not task.cancelled()]
        return tuple(one for one in said if isinstance(one, AgentConditions))

    async def stop(self) -> None:
        """End every worker, then give back what they ran on. Never raises for what an agent did."""
        for task in self.starts.values():
            if not task.done():
                task.cancel()
        try:
            await asyncio.gather(*self.starts.values(), return_exceptions=True)
            await asyncio.gather(*(driver.stop() for driver in self.drivers.values()), return_exceptions=True)
        finally:
            self.release()


@dataclass(frozen=True, slots=True)
class NoBase:
    """Why the base commit's agents cannot be run, in one sentence. ``absent``: those that it does not have."""

    reason: str
    commit: str | None = None
    absent: frozenset[str] = frozenset()
