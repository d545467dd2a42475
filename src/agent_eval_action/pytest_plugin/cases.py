"""pytest's collectors and items for eval files and cases, and the runs that measure them."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pytest

from agent_eval_action.api.cases import measure_cases, read_cases
from agent_eval_action.baseline.accepted import ACCEPT
from agent_eval_action.baseline.stores import FOLDER
from agent_eval_action.config.loader import load_settings
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.config.walk import holds_cases, is_eval_file
from agent_eval_action.errors import AgentEvalError
from agent_eval_action.reports.base import ReportInput
from agent_eval_action.reports.differences import error_text, failure_text
from agent_eval_action.reports.formatting import clean
from agent_eval_action.reports.verdict import quoted_case
from agent_eval_action.reports.view import CaseView, passing
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import ChangeKind
from agent_eval_action.results.evalset import EvalCase
from agent_eval_action.run.listing import tags_of
from agent_eval_action.run.plan import PlannedSet

_NAME: Final = 200

Measured = CaseView | AgentEvalError | None
"""A case that was run; the error that prevented the run; None if the run ended before the case."""


def eval_file(
    path: Path, parent: pytest.Collector, *, config: Path | None, repeats: int | None
) -> CollectedEvalFile | None:
    """Return the collector of an eval file; None if the file only has a similar name."""
    named = parent.session.isinitpath(path)
    if not named and not (is_eval_file(path) or (path.name.endswith("-dataset.json") and holds_cases(path))):
        return None
    if _CASES not in parent.session.stash:
        config = None if config is None else parent.config.invocation_params.dir / config
        parent.session.stash[_CASES] = EvalCases(parent.session, {"config": config, "repeats": repeats})
    return CollectedEvalFile.from_parent(parent, path=path)


class CollectedEvalFile(pytest.File):
    """An eval file; its items are its cases, once for each agent it evaluates."""

    def collect(self) -> Iterator[EvalItem]:
        """Read the file and its criteria. Raises CollectError with the line of each problem."""
        cases = self.session.stash[_CASES]
        try:
            plan, agents = read_cases(cases.settings, [str(self.path)])
        except AgentEvalError as error:
            raise self.CollectError(_sentences(error)) from None
        by_name = {agent.name: agent for agent in agents}
        for planned in plan.sets:
            for item in planned.cases:
                name = f"{item.case.eval_id}[{planned.agent}]" if len(plan.sets) > 1 else item.case.eval_id
                what = {"case": item.case, "planned": planned, "agent": by_name[planned.agent], "agents": len(agents)}
                yield EvalItem.from_parent(self, name=_printable_name(name), **what)


class EvalItem(pytest.Item):
    """One case of an agent. If it cannot be measured, its setup fails; if it misses a threshold, the test fails.

    ``agents``: how many agents its file evaluates. ``key`` has the file as eval set, because the set's name depends
    on what else is run.
    """

    def __init__(self, *, case: EvalCase, planned: PlannedSet, agent: AgentSettings, agents: int, **node: Any) -> None:
        super().__init__(**node)
        self.agent = agent
        self.agents = agents
        self.key = CaseKey(agent.name, planned.path, case.eval_id)
        self.line = case.line
        self.add_marker("agent_eval")
        for tag in tags_of(case):
            if not tag.isidentifier() or tag[0] == "_":  # not a valid marker name
                continue
            self.config.addinivalue_line("markers", f"{tag}: a tag of eval cases")
            self.add_marker(tag)
        self.extra_keyword_matches.update((agent.name, planned.key))
        self._failure = ""
        self._excused = False

    def setup(self) -> None:
        """Measure the case; the first case measures all selected ones."""
        view = self.session.stash[_CASES].measured(self)
        if isinstance(view, AgentEvalError):
            pytest.fail(_sentences(view), pytrace=False)
        if view is None or view.result is None:
            pytest.fail("not measured: the run ended first", pytrace=False)
        scores = ((pair.criterion, pair.current.mean) for pair in view.pairs if pair.current is not None)
        self.user_properties += [(f"agent_eval.{_printable_name(name)}", score) for name, score in scores]
        self._failure = failure_text(view) if view.blocks else ""
        self._excused = any(pair.quarantined and (pair.errors or passing(pair) is False) for pair in view.pairs)
        errors = not view.result.attempts or any(pair.kind is ChangeKind.ERROR or pair.errors for pair in view.pairs)
        if not (view.blocks or self._excused) and (view.result.unmeasured or errors):
            pytest.fail(view.result.unmeasured or error_text(view), pytrace=False)
        if all(pair.kind is ChangeKind.NOT_APPLICABLE for pair in view.pairs):
            pytest.skip("no criterion is applicable to this case")

    def runtest(self) -> None:
        """Fail if a threshold is missed; xfail if the case is quarantined."""
        if self._failure:
            pytest.fail(self._failure, pytrace=False)
        if self._excused:
            pytest.xfail(f"quarantined in {ACCEPT}")

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return path, line and name; pytest counts lines from 0."""
        return self.path, self.line - 1 if self.line else None, self.name


class EvalCases:
    """Runs and caches a session's cases. The first result asked for starts one run of all selected cases.

    A session that stops at the first failures runs one file at a time. A pytest-xdist worker receives its items one
    by one, so it runs each separately.
    """

    def __init__(self, session: pytest.Session, options: Mapping[str, Any]) -> None:
        self._session = session
        self._options = options
        self._measured: dict[CaseKey, Measured] = {}
        self._run: set[CaseKey] = set()

    @cached_property
    def settings(self) -> Settings:
        """The checkout's settings, with a results folder for each process. Raises AgentEvalError."""
        settings = load_settings(self._session.config.rootpath, **self._options)
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        return settings.model_copy(update={"out": settings.workspace / FOLDER / "pytest" / worker})

    def measured(self, item: EvalItem) -> Measured:
        """Return the result of an item. Asked again, as on a re-run, it measures again."""
        if item.key not in self._measured:
            items = [item] if item.key in self._run else self._items_to_measure(item)
            for agents, chosen in _runs(items):
                self._measure(agents, chosen)
        return self._measured.pop(item.key)

    def _items_to_measure(self, item: EvalItem) -> list[EvalItem]:
        """Return the items to run together with this one, including it."""
        config = self._session.config
        if hasattr(config, "workerinput"):
            return [item]
        waiting = [each for each in self._session.items if isinstance(each, EvalItem) and each.key not in self._run]
        if config.getoption("maxfail", 0) or config.getoption("stepwise", default=False):
            return [each for each in waiting if each.path == item.path]
        return waiting

    def _measure(self, agents: tuple[AgentSettings, ...], items: Sequence[EvalItem]) -> None:
        self._run.update(item.key for item in items)
        files: dict[Path, dict[str, None]] = {}
        for item in items:
            files.setdefault(item.path, {})[item.key.case] = None
        selectors = [f"{path}:{','.join(map(quoted_case, cases))}" for path, cases in files.items()]
        settings = self.settings.model_copy(update={"agents": agents or self.settings.agents})
        try:
            # a private event loop, not set as the default, because other tests may use their own
            with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
                report = ReportInput(runner.run(measure_cases(settings, selectors)))
        except AgentEvalError as error:
            self._measured.update(dict.fromkeys((item.key for item in items), error))
            return
        views = {
            CaseKey(view.owner.agent, view.owner.path, view.key.case): view for view in report.view.cases if view.owner
        }
        self._measured.update({item.key: views.get(item.key) for item in items})


_CASES: Final = pytest.StashKey[EvalCases]()


def _runs(items: Sequence[EvalItem]) -> Iterator[tuple[tuple[AgentSettings, ...], Sequence[EvalItem]]]:
    """Yield runs that measure exactly these items, each with its agents; () means all agents.

    A run measures the same cases for every agent of a file, so agents with different selected cases get their own run.
    """
    counts = Counter((item.path, item.key.case) for item in items)
    if all(counts[item.path, item.key.case] == item.agents for item in items):
        yield (), items
        return
    by_agent: dict[str, list[EvalItem]] = {}
    for item in items:
        by_agent.setdefault(item.agent.name, []).append(item)
    yield from (((members[0].agent,), members) for members in by_agent.values())


def _printable_name(name: str) -> str:
    """Return a printable one-line name without "::", which separates file and test in pytest's ids."""
    return clean(name, _NAME).replace("::", ": :") or "(empty)"


def _sentences(error: AgentEvalError) -> str:
    lines: Iterable[str] = map(str, error.problems) if error.problems else (error.message, error.hint or "")
    return clean("\n".join(filter(None, lines)), lines=True)
