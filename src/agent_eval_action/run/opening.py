"""The base commit's agents, opened when they may be needed and given back at the end of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from agent_eval_action.run.arms import Arm, NoBase

OpenBase = Callable[[frozenset[str]], Awaitable[Arm | NoBase]]
"""Makes the base commit's agents of these names run, or says why they cannot."""


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

    async def opened(self, agents: frozenset[str]) -> Arm | NoBase:
        """The arm with these agents, which are being started; or why one of them cannot be run."""
        self.begin(agents)
        tasks = list(dict.fromkeys(self._opening[name] for name in sorted(agents)))
        found = [await asyncio.shield(task) for task in tasks]
        missing = next((one for one in found if isinstance(one, NoBase)), None)
        if missing is not None:
            return missing
        arms = [one for one in found if isinstance(one, Arm)]
        return arms[0] if len(arms) == 1 else _joined(arms)

    def refused(self) -> NoBase | None:
        """Why an agent that was begun early cannot be run, as far as that is known."""
        done = [task for task in self._opening.values() if task.done() and not task.cancelled()]
        said = [task.result() for task in done if task.exception() is None]
        return next((one for one in said if isinstance(one, NoBase)), None)

    async def stop(self) -> None:
        """End everything that was opened or is being opened; why it failed does not matter any more."""
        tasks = set(self._opening.values())
        for task in tasks:
            if not task.done():
                task.cancel()
        for one in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(one, Arm):
                await one.stop()


def _joined(arms: list[Arm]) -> Arm:
    """Several arms as one, which is not to be stopped itself."""
    drivers = {name: driver for arm in arms for name, driver in arm.drivers.items()}
    starts = {name: task for arm in arms for name, task in arm.starts.items()}
    return Arm(arms[0].name, drivers, starts, arms[0].commit)
