"""The base commit's agents, opened when they may be needed and given back at the end of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from agent_eval_action.run.arms import Arm, NoBase

OpenBase = Callable[[frozenset[str]], Awaitable[Arm | NoBase]]
"""Makes the base commit's agents of these names run; says why, where one or all of them cannot."""


@dataclass
class BaseArms:
    """Opens each agent at most once. Agents asked for together share their files."""

    open_base: OpenBase
    _opening: dict[str, asyncio.Task[Arm | NoBase]] = field(default_factory=dict)

    def begin(self, agents: frozenset[str]) -> bool:
        """Begin to open these; whether any of them is new. Nothing is waited for, and nothing said."""
        new = agents - self._opening.keys()
        if new:
            task = asyncio.ensure_future(self.open_base(new))
            self._opening.update(dict.fromkeys(sorted(new), task))
        return bool(new)

    def ready(self, agents: frozenset[str]) -> bool:
        """Whether nothing is left to wait for: each of these has started, or it is known why it does not."""
        for task in {self._opening[name] for name in agents}:
            if not task.done() or task.exception() is not None:
                return False
            arm = task.result()
            if isinstance(arm, Arm) and not all(start.done() for start in arm.starts.values()):
                return False
        return True

    @property
    def starting(self) -> bool:
        """Whether an agent of the base commit is being made ready or started."""
        return not self.ready(frozenset(self._opening))

    async def opened(self, agents: frozenset[str]) -> Arm:
        """These agents, those that can be run being started. The answer is not to be stopped itself."""
        self.begin(agents)
        return _joined({name: await asyncio.shield(self._opening[name]) for name in sorted(agents)})

    def known(self) -> Arm:
        """The same of every agent that was begun, as far as it is open."""
        done = {name: task for name, task in self._opening.items() if task.done() and not task.cancelled()}
        return _joined({name: task.result() for name, task in done.items() if task.exception() is None})

    async def stop(self) -> None:
        """End everything that was opened or is being opened; why it failed does not matter any more."""
        tasks = set(self._opening.values())
        for task in tasks:
            if not task.done():
                task.cancel()
        for one in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(one, Arm):
                await one.stop()


def _joined(opened: Mapping[str, Arm | NoBase]) -> Arm:
    """Each agent out of the arm it was opened with."""
    arms = {name: arm for name, arm in opened.items() if isinstance(arm, Arm) and name in arm.drivers}
    return Arm(
        "base",
        {name: arm.drivers[name] for name, arm in arms.items()},
        {name: arm.starts[name] for name, arm in arms.items()},
        next((one.commit for one in opened.values() if one.commit), ""),
        missing={
            name: one.reason if isinstance(one, NoBase) else one.missing.get(name, "it was not opened")
            for name, one in opened.items()
            if name not in arms
        },
        absent=frozenset(name for name, one in opened.items() if name in one.absent),
    )
