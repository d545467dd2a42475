"""``AgentEvaluator`` with the parameters and outcomes of google-adk 2.13's. docs/pytest.md lists the differences."""

from __future__ import annotations

import builtins
import csv
import importlib.util
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Final

from agent_eval_action.api.cases import measure_cases
from agent_eval_action.baseline.stores import FOLDER
from agent_eval_action.config.criteria import DEFAULT_CRITERIA
from agent_eval_action.config.loader import load_settings
from agent_eval_action.config.models import AgentModule, AgentSettings, Settings
from agent_eval_action.folders import OutputFolder, below
from agent_eval_action.formats import load_eval_file
from agent_eval_action.reports.formatting import clean
from agent_eval_action.results.evalset import EvalCase, Invocation
from agent_eval_action.results.pair_scores import meets
from agent_eval_action.results.run_result import Attempt, CriterionInfo, CriterionScore, ErrorKind
from agent_eval_action.run.events import AttemptFinished, Event

_CONFIG: Final = "test_config.json"
_OF_OLD_SCHEMA: Final = {
    "tool_trajectory_avg_score": ("query", "expected_tool_use"),
    "response_evaluation_score": ("query",),
    "response_match_score": ("query", "reference"),
    "safety_v1": (),
}
"""The criteria that ADK's AgentEvaluator accepts for files of the older schema, and the keys that they need."""
_AGENT: Final = "agent"
_NOT_LOADED: Final = frozenset({ErrorKind.IMPORT, ErrorKind.ENVIRONMENT})
_COLUMNS: Final = ("prompt", "expected_response", "actual_response", "expected_tool_calls", "actual_tool_calls")
_WIDTH: Final = 25


class AgentEvaluator:
    """Evaluates agents in tests: ``await AgentEvaluator.evaluate(agent_module="shop", ...)``.

    The agent runs in a separate process. Arguments of google-adk's class that cannot be passed to it
    (``artifact_service``, ``eval_set_results_manager``) raise TypeError.
    """

    @staticmethod
    async def evaluate(
        agent_module: str,
        eval_dataset_file_path_or_dir: str,
        num_runs: int = 2,
        agent_name: str | None = None,
        initial_session_file: str | None = None,
        print_detailed_results: bool = True,
        artifact_service: Any = None,
        output_file: str | None = None,
        app_name: str | None = None,
        eval_set_results_manager: Any = None,
    ) -> None:
        """Evaluate an agent by an eval file, or by all ``*.test.json`` below a folder.

        Args:
            agent_module: The agent's module: a package with a member ``agent``, or a module named ``….agent``.
            eval_dataset_file_path_or_dir: The file or the folder. ``test_config.json`` beside a file has its criteria.
            num_runs: Runs of every case. A criterion's mean over all turns of all runs has to meet its threshold.
            agent_name: The sub-agent that answers, the root agent by default.
            initial_session_file: The session's state for files of the older schema.
            print_detailed_results: Print every turn with its scores.
            artifact_service: Must be None.
            output_file: A CSV file to which every turn with its scores is appended.
            app_name: Not used.
            eval_set_results_manager: Must be None.

        Raises:
            AssertionError: A criterion of a case misses its threshold, or has no score, or a run of the agent failed.
            AgentEvalError: An eval file or a criterion cannot be used.
            ValueError: As in google-adk: no run or no file is requested, or the agent is not found.
        """
        __tracebackhide__ = True  # pytest shows the caller's line
        del app_name
        _check(num_runs, artifact_service=artifact_service, eval_set_results_manager=eval_set_results_manager)
        path = Path(eval_dataset_file_path_or_dir)
        files = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
        files = [file for file in files if file.name.endswith(".test.json")] if path.is_dir() else [path]
        if not files:
            raise ValueError(f"No `*.test.json` eval files found in {path}, so there is nothing to evaluate.")
        session = Path(initial_session_file) if initial_session_file else None
        if session is not None and not json.loads(session.read_text("utf-8")):
            session = None
        request = _Request(agent_module, agent_name or "", num_runs, print_detailed_results, output_file)
        for file in files:
            config = file.with_name(_CONFIG)
            await request.evaluate(file, config if config.is_file() else None, session)

    @staticmethod
    async def evaluate_eval_set(
        agent_module: str,
        eval_set: Any,
        criteria: Mapping[str, float] | None = None,
        eval_config: Any = None,
        num_runs: int = 2,
        agent_name: str | None = None,
        print_detailed_results: bool = True,
        artifact_service: Any = None,
        output_file: str | None = None,
        app_name: str | None = None,
        eval_set_results_manager: Any = None,
    ) -> None:
        """Evaluate an agent by an eval set: google-adk's ``EvalSet``, or its JSON as a mapping.

        ``eval_config`` is google-adk's ``EvalConfig`` or the content of test_config.json; ``criteria`` (thresholds by
        name) overrides it. The other arguments are those of ``evaluate``.
        """
        __tracebackhide__ = True  # pytest shows the caller's line
        del app_name
        _check(num_runs, artifact_service=artifact_service, eval_set_results_manager=eval_set_results_manager)
        content = _json_of(eval_set)
        if not content or not (content.get("eval_cases") or content.get("evalCases")):
            raise ValueError("No eval cases were evaluated: `eval_set` has no eval cases.")
        config = {"criteria": dict(criteria)} if criteria else _json_of(eval_config)
        if config is None:
            raise ValueError("`eval_config` is required.")
        request = _Request(agent_module, agent_name or "", num_runs, print_detailed_results, output_file)
        with tempfile.TemporaryDirectory(prefix="agent-eval-") as folder:
            file, beside = Path(folder, "eval_set.evalset.json"), Path(folder, _CONFIG)
            file.write_text(json.dumps(content), "utf-8")
            beside.write_text(json.dumps(config), "utf-8")
            await request.evaluate(file, beside)

    @staticmethod
    def find_config_for_test_file(test_file: str) -> dict[str, Any]:
        """Return the content of ``test_config.json`` beside an eval file, or ADK's default criteria without one."""
        config = Path(test_file).with_name(_CONFIG)
        if config.is_file():
            return dict(json.loads(config.read_text("utf-8")))
        return {"criteria": {spec.name: spec.options["threshold"] for spec in DEFAULT_CRITERIA}}

    @staticmethod
    def migrate_eval_data_to_new_schema(
        old_eval_data_file: str, new_eval_data_file: str, initial_session_file: str | None = None
    ) -> None:
        """Convert a file of the older list schema to the schema of eval sets. Raises EvalFileError."""
        if not old_eval_data_file or not new_eval_data_file:
            raise ValueError("One of old_eval_data_file or new_eval_data_file is empty.")
        session = Path(initial_session_file) if initial_session_file else None
        old = Path(old_eval_data_file).absolute()
        shared = os.path.commonpath([old.parent, *([session.absolute().parent] if session else [])])
        eval_set = load_eval_file(old, workspace=Path(shared), session_file=session and session.absolute()).eval_set
        Path(new_eval_data_file).write_text(eval_set.model_dump_json(indent=2, exclude_none=True), "utf-8")


@dataclass(frozen=True, slots=True)
class _Request:
    module: str
    sub_agent: str
    runs: int
    verbose: bool
    output_file: str | None

    async def evaluate(self, file: Path, config: Path | None, session: Path | None = None) -> None:
        """Evaluate a file; ``config`` None uses ADK's default criteria. Raises AssertionError with every failure."""
        __tracebackhide__ = True
        settings, attempts = self.settings(), list[Attempt]()
        OutputFolder.at(settings.workspace / FOLDER, settings.workspace).make()
        with tempfile.TemporaryDirectory(prefix="evaluator-", dir=settings.workspace / FOLDER) as folder:
            own = [_in_workspace(path, settings.workspace, Path(folder)) for path in (file, config, session) if path]
            file = own[0]
            loaded = load_eval_file(file, workspace=settings.workspace, session_file=own[-1] if session else None)
            if loaded.format == "adk_legacy":
                _check_old_schema(file, AgentEvaluator.find_config_for_test_file(str(config or file)))
            elif session:
                raise AssertionError(
                    "Initial session should be specified as a part of EvalSet file. Explicit initial session is only "
                    "needed, when specifying data in the older schema."
                )
            given = {
                "criteria": own[1] if config else DEFAULT_CRITERIA,
                "initial_session_file": own[-1] if session else None,
            }
            agents = tuple(agent.model_copy(update=given) for agent in settings.agents)
            settings = settings.model_copy(update={"agents": agents, "out": Path(folder, "out")})

            def keep(event: Event) -> None:
                if isinstance(event, AttemptFinished):
                    attempts.append(event.attempt)

            result = await measure_cases(settings, [str(file)], on_event=keep)
        _raise_unloaded(attempts)
        infos = result.sets[0].criteria
        cases = [
            _CaseRuns(self.module, case, infos, [made for made in attempts if made.case == case.eval_id])
            for case in loaded.eval_set.eval_cases
        ]
        for case in cases if self.verbose else ():
            case.print_details()
        if self.output_file:
            _add_rows(Path(self.output_file), [row for case in cases for row in case.rows(loaded.eval_set.eval_set_id)])
        if failures := [line for case in cases for line in case.failures()]:
            more = (
                " If you looking to get more details on the failures, then please re-run this test with "
                "`print_detailed_results` set to `True`."
            )
            first = "Following are all the test failures." + ("" if self.verbose else more)
            raise AssertionError("\n".join([first, *failures]))

    def settings(self) -> Settings:
        """The current folder's settings, with this agent only."""
        settings = load_settings()
        folder, root = _locate(self.module)
        workspace = settings.workspace if folder.is_relative_to(settings.workspace) else root
        search = dict.fromkeys((root, *(Path(entry or ".").resolve() for entry in sys.path)))
        here = Path.cwd()
        module = AgentModule(
            name=self.module,
            sub_agent=self.sub_agent,
            search_path=tuple(place for place in search if _is_project_folder(place, workspace)),
            cwd=here if here.is_relative_to(workspace) else root,
        )
        configured = next((agent for agent in settings.agents if agent.path == folder), settings.agent_defaults)
        given = {name: getattr(configured, name) for name in type(settings.agent_defaults).model_fields}
        given |= {"driver": "adk", "recording": None, "user_simulator": None, "module": module}
        given["python"] = given["python"] or (Path(sys.executable) if _has_adk() else None)
        # the caller is part of the same change and sees all of them anyway; job-only variables are still left out
        names = [name for name in os.environ if not name.startswith(("PYTEST_", "PYTHON"))]
        given["env"] = {**dict.fromkeys(names), **given["env"]}
        agent = AgentSettings(path=folder, name=_AGENT, **given)
        update = {"agents": (agent,), "evals": (), "case": (), "workspace": workspace, "repeats": self.runs}
        return settings.model_copy(update=update)


@dataclass(frozen=True, slots=True)
class _CaseRuns:
    """A case and all its attempts, judged as google-adk's class does."""

    module: str
    case: EvalCase
    infos: Sequence[CriterionInfo]
    attempts: Sequence[Attempt]

    def failures(self) -> Iterator[str]:
        """One line for each criterion that misses its threshold or has no score, and one for failed runs."""
        failed = [made.error.message for made in self.attempts if made.error is not None]
        for info in self.infos if len(failed) < len(self.attempts) else ():
            mean = self._mean(info)
            if info.threshold is None:
                continue
            if mean is None:
                reasons = dict.fromkeys(clean(score.reason) for _, score in self._scores(info) if score.reason)
                yield (
                    f"{info.name} for {self.module} was not evaluated. No score was produced, so the threshold of "
                    f"{info.threshold} was never checked and this is not a score regression."
                    f"{''.join(f' {reason}' for reason in reasons)}"
                )
            elif not meets(mean, info.threshold, info.goal):
                yield f"{info.name} for {self.module} Failed. Expected {info.threshold}, but got {mean}."
        if failed or not self.attempts:
            yield (
                f"{self.case.eval_id} for {self.module} Failed. {len(failed)} of {len(self.attempts)} runs were "
                f"recorded as failed without producing any metric results. {'; '.join(dict.fromkeys(failed))}"
            )

    def rows(self, eval_set: str) -> Iterator[dict[str, Any]]:
        """One row for each criterion and turn, with the columns of google-adk's CSV file."""
        for info in self.infos:
            for attempt, score in self._scores(info):
                for number, value in enumerate(_turn_scores(attempt, score)):
                    yield {
                        "eval_set_id": eval_set,
                        "eval_id": self.case.eval_id,
                        "metric_name": info.name,
                        "threshold": info.threshold,
                        "score": value,
                        "eval_status": _status(value, info),
                        **_texts(attempt.turns[number], self.case.turns[number : number + 1]),
                    }

    def print_details(self) -> None:
        """Print a summary and a table for each criterion."""
        from rich.box import ASCII2  # noqa: PLC0415 - only needed to print
        from rich.console import Console  # noqa: PLC0415 - as above
        from rich.table import Table  # noqa: PLC0415 - as above

        rows = list(self.rows(""))
        for info in self.infos:
            mean = self._mean(info)
            print(
                f"Summary: `EvalStatus.{_status(mean, info)}` for Metric: `{info.name}`. Expected threshold: "
                f"`{info.threshold}`, actual value: `{mean}`."
            )
            names = ("eval_status", "score", *_COLUMNS)
            table = Table(*names, box=ASCII2, show_lines=True)
            for row in rows:
                if row["metric_name"] == info.name:
                    table.add_row(*(clean(str(row[name]), lines=True).replace("[", r"\[") for name in names))
            Console(width=_WIDTH * len(names), file=sys.stdout, color_system=None).print(table)

    def _scores(self, info: CriterionInfo) -> Iterator[tuple[Attempt, CriterionScore]]:
        for attempt in self.attempts:
            if attempt.error is None:
                yield from ((attempt, score) for score in attempt.scores if score.criterion == info.name)

    def _mean(self, info: CriterionInfo) -> float | None:
        """The mean over all scored turns of all runs."""
        found = (value for attempt, score in self._scores(info) for value in _turn_scores(attempt, score))
        known = [value for value in found if value is not None]
        return statistics.mean(known) if known else None


def _turn_scores(attempt: Attempt, score: CriterionScore) -> list[float | None]:
    """The score of each turn; the conversation's score for criteria that only score conversations."""
    if not score.turns:
        return [score.score] * len(attempt.turns)
    known = {turn.turn: turn.score for turn in score.turns}
    return [known.get(number) for number in range(len(attempt.turns))]


def _status(value: float | None, info: CriterionInfo) -> str:
    if info.threshold is None:
        return "INFORMATIONAL"
    if value is None:
        return "NOT_EVALUATED"
    return "PASSED" if meets(value, info.threshold, info.goal) else "FAILED"


def _texts(actual: Invocation, expected: Sequence[Invocation]) -> dict[str, str]:
    wanted = expected[0] if expected else Invocation(user_content=actual.user_content)
    calls = ("\n".join(f"{call.name}({call.args or {}})" for call in turn.tool_calls()) for turn in (wanted, actual))
    values = (wanted.user_content.text, wanted.response_text, actual.response_text, *calls)
    return dict(zip(_COLUMNS, values, strict=True))


def _add_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.is_file()
    with path.open("a", encoding="utf-8", errors="replace", newline="") as file:
        names = ("eval_set_id", "eval_id", "metric_name", "threshold", "score", "eval_status", *_COLUMNS)
        writer = csv.DictWriter(file, names, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerows(rows)


def _raise_unloaded(attempts: Iterable[Attempt]) -> None:
    """Raise the exception that importing the agent raised, if it is one of Python's built-ins."""
    error = next((made.error for made in attempts if made.error and made.error.kind in _NOT_LOADED), None)
    if error is None:
        return
    name, _, text = error.message.partition(": ")
    kind = getattr(builtins, name, None)
    text = text.rpartition(" (environment: ")[0] or text
    try:
        raised = kind(text) if isinstance(kind, type) and issubclass(kind, Exception) else RuntimeError(error.message)
    except TypeError:  # its constructor takes other arguments
        raised = RuntimeError(error.message)
    raised.add_note(error.traceback)
    raise raised


def _is_project_folder(place: Path, workspace: Path) -> bool:
    """Whether an import folder belongs to the project, not to its Python environment."""
    prefixes = (Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve())
    return place.is_dir() and place.is_relative_to(workspace) and not any(map(place.is_relative_to, prefixes))


def _has_adk() -> bool:
    try:
        return importlib.util.find_spec("google.adk") is not None
    except (ImportError, ValueError):
        return False


def _locate(module: str) -> tuple[Path, Path]:
    """The folder of an agent's module and the one it is imported from. Imports no package.

    Raises ModuleNotFoundError.
    """
    first, *rest = module.split(".")
    spec = importlib.util.find_spec(first) if first else None
    for part in rest:  # importlib.util.find_spec would import the parent packages
        spec = PathFinder.find_spec(part, [*((spec and spec.submodule_search_locations) or ())])
    if spec is None or not (spec.submodule_search_locations or spec.origin):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    places = list(map(Path, spec.submodule_search_locations or ()))
    folder = (places[0] if places else Path(spec.origin or "").parent).resolve()
    up = len(rest) - (0 if places else 1)
    return folder, folder.parents[up] if up >= 0 else folder


def _in_workspace(path: Path, workspace: Path, folder: Path) -> Path:
    """The caller's file if it lies in the workspace, else a copy there: nothing outside is read."""
    inside = below(path.absolute(), workspace)
    return inside if inside is not None else Path(shutil.copyfile(path, folder / path.name))


def _check_old_schema(file: Path, config: Mapping[str, Any]) -> None:
    """Refuse what google-adk's class refuses in the older schema, of which it checks only the first turn."""
    criteria = config.get("criteria") or {}
    first: Mapping[str, Any] = next(iter(json.loads(file.read_text("utf-8"))), {})
    for name in criteria:
        if name not in _OF_OLD_SCHEMA:
            raise ValueError(f"Invalid criteria key: {name}. Expected one of {list(_OF_OLD_SCHEMA)}.")
    for name, keys in _OF_OLD_SCHEMA.items():
        if name in criteria and not first.keys() >= {*keys}:
            raise ValueError(f"Samples for {name} must include {' and '.join(map(repr, keys))} keys.")


def _json_of(value: Any) -> dict[str, Any] | None:
    """A mapping, or a google-adk model as JSON."""
    if value is None:
        return None
    return dict(value) if isinstance(value, Mapping) else dict(json.loads(value.model_dump_json(exclude_none=True)))


def _check(runs: int, **unusable: Any) -> None:
    for name, value in unusable.items():
        if value is not None:
            raise TypeError(f"{name} cannot be given: the agent runs in a process of its own")
    if runs < 1:
        raise ValueError(f"`num_runs` must be at least 1, got {runs}.")
