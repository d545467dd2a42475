"""``agent-eval accept`` and ``update``: declare a change of the agent's behaviour as intended.

``accept`` writes intended changes and quarantines to .agent-eval/accept.yaml. ``update`` shows how the agent's
behaviour differs from a case's expectations, and rewrites those that the user accepts in the eval file.
"""

from __future__ import annotations

import datetime as dt
import difflib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import termios
import tty
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from rich.text import Text

from agent_eval_action.baseline import accepted
from agent_eval_action.baseline.accepted import ACCEPT
from agent_eval_action.capture import EvalFile
from agent_eval_action.capture.cases import (
    ExpectedTurn,
    expected_turns,
    most_frequent,
    proposed_turns,
    same_turns,
)
from agent_eval_action.capture.conversations import attempts_of_run
from agent_eval_action.cli import log
from agent_eval_action.cli.log import console, print_line, print_wrapped
from agent_eval_action.cli.outputs import read_last_run
from agent_eval_action.cli.session import cases_in_files, plan_of, settings_for
from agent_eval_action.config.criteria import UserSimulatorConfig
from agent_eval_action.config.models import Settings
from agent_eval_action.diagnostics.reader import did_you_mean, plural
from agent_eval_action.diagnostics.suggestions import shortlist
from agent_eval_action.errors import AgentEvalError, ExitCode, UsageError
from agent_eval_action.folders import relative
from agent_eval_action.gate.verdict import worse_pairs
from agent_eval_action.reports import ReportInput
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.verdict import next_steps
from agent_eval_action.reports.view import NOT_GREEN, CaseView, Group
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import PairChange
from agent_eval_action.results.evalset import EvalCase
from agent_eval_action.results.history import Quarantine
from agent_eval_action.results.run_result import Attempt, RunResult
from agent_eval_action.results.trajectory import format_call
from agent_eval_action.run.loader import names_of
from agent_eval_action.run.plan import planned_digest

_NAMES_SHOWN = 8


def accept_named(
    named: Mapping[str, Sequence[str]], reason: str, config: str | None, quarantine: Mapping[str, str] | None = None
) -> None:
    """Accept cases by name. ``named``: values of ``case``, ``criterion``, ``agent`` and ``eval_set``.

    ``quarantine``: with ``owner`` and ``until``, quarantine the cases instead.

    Raises UsageError for a name that is not in the suite's files.
    """
    if quarantine is not None:
        until = quarantine["until"]
        if why := accepted.why_no_day(until):
            raise UsageError(f"--until {until!r} {why}", hint="for example --until 2027-01-31")
        if until < dt.datetime.now(dt.UTC).date().isoformat():
            raise UsageError(f"--until {until} is over already", hint="name the last day on which the case may fail")
    settings = settings_for({"config": config}).settings
    names = names_of(plan_of(settings))
    for word, values in named.items():
        known = getattr(names, word)
        for value in values:
            if value not in known:
                hint = did_you_mean(value, known) or f"known: {shortlist(sorted(known), _NAMES_SHOWN)}"
                raise UsageError(f"there is no {word.replace('_', ' ')} {value!r}", hint=hint)
    if not named["case"]:
        raise UsageError("no case is named", hint="agent-eval accept CASE …, or --worse for all that got worse")
    where = {word: named[word][0] for word in ("agent", "eval_set") if named[word]}
    shared = {**where, "reason": reason, **(quarantine or {})}
    criteria = [{"criterion": name} for name in named["criterion"]] or [{}]
    _append(settings, [{"case": case, **criterion, **shared} for criterion in criteria for case in named["case"]])


def accept_worse(reason: str, results: Path | None, config: str | None) -> None:
    """Accept every pair that got worse in the last run, or in the one in ``results``."""
    settings = settings_for({"config": config}).settings
    result = read_last_run(settings, results)
    if worse := worse_pairs(ReportInput(result).decision):
        _append(settings, _entries(result, worse, reason))
    else:
        print_line("nothing got worse in that run, so there is nothing to accept")
    for step in next_steps(result):
        if step.places:
            print_line(str(step.text))
            for place in step.places:
                print_line(f"  {place}")


def _entries(result: RunResult, accepted_of: Iterable[PairChange | CaseKey], reason: str) -> Iterator[dict[str, str]]:
    """Yield entries of accept.yaml; agent and eval set are given only if another case has the same name."""
    times = Counter(case.case for owner in result.sets for case in owner.cases)
    for item in accepted_of:
        criterion = {"criterion": item.criterion} if isinstance(item, PairChange) else {}
        where = {"agent": item.agent, "eval_set": item.eval_set} if times[item.case] > 1 else {}
        yield {"case": item.case, **criterion, **where, "reason": reason}


def _append(settings: Settings, entries: Iterable[Mapping[str, str]]) -> None:
    entries = list(entries)
    path = settings.workspace / ACCEPT
    added = accepted.append(path, entries, workspace=settings.workspace)
    shown = relative(path, settings.workspace)
    for entry in added:
        what = f"quarantined until {entry.until}" if isinstance(entry, Quarantine) else "accepted"
        print_line(f"{what}: {' › '.join(filter(None, (entry.case, entry.criterion)))}")
    if left := len(entries) - len(added):
        already = "change is in it already" if left == 1 else "changes are in it already"
        print_line(f"{shown}: {left:,} {already} with this reason; give another reason if the check blocks them still")
    if added:
        note = f"{plural(len(added), 'change')} accepted; commit it. Their history starts anew at the merge."
        if isinstance(added[0], Quarantine):
            note = f"{plural(len(added), 'entry', 'entries')} added; commit it. What it names runs and blocks nothing."
        print_line(f"{shown}: {note}")


_LINES_SHOWN: Final = 40
_TRAJECTORY_WORDS: Final = ("trajectory", "tool", "call", "route")
"""Substrings that identify criteria that score tool calls."""
_SIGNS: Final = {"-": "red", "+": "green", " ": "dim"}
_QUESTION: Final = "a accept · s skip · e edit · q quit "


@dataclass(frozen=True, slots=True)
class _Difference:
    """A case whose agent did not do what the file expects. ``alike`` of ``runs`` attempts did what is ``proposed``."""

    key: CaseKey
    file: EvalFile
    line: int | None
    expected: tuple[ExpectedTurn, ...]
    proposed: tuple[ExpectedTurn, ...]
    alike: int
    runs: int


def update_command(
    cases: Sequence[str], results: Path | None, config: str | None, *, every: bool, yes: bool, reason: str
) -> ExitCode:
    """Show each difference, ask, and write what the user accepts. ``every``: green cases too. ``yes``: do not ask.

    Exits 0; 2 without a terminal to ask on; 3 if nothing differs but some cases could not be compared; 130 after
    Ctrl-C.
    """
    settings = settings_for({"config": config}).settings
    result = read_last_run(settings, results)
    folder = settings.out if results is None else results
    wanted = _selected_views(result, cases, every=every)
    attempts = attempts_of_run(folder if folder.is_dir() else folder.parent, wanted.keys(), settings.workspace)
    found, skipped = _differences(settings, wanted, attempts)
    if not found:
        if not skipped:
            print_line("what the agent did is what these cases expect: there is nothing to update")
            return ExitCode.PASS
        print_line(f"{plural(skipped, 'case')} of {len(wanted)} could not be compared; the others need no update")
        return ExitCode.INCONCLUSIVE
    review = _Review(settings, found)
    try:
        code = review.accept_all() if yes else review.ask()
    except KeyboardInterrupt:
        print_line("")
        code = ExitCode.INTERRUPTED
    finally:
        review.finish(result, wanted, reason or "what the case expects was updated")
    return code


def _selected_views(result: RunResult, cases: Sequence[str], *, every: bool) -> dict[CaseKey, CaseView]:
    """Return the named cases; without names every case, or only those that were not green."""
    views = {view.key: view for view in ReportInput(result).view.cases if view.result is not None}
    if not cases:
        return {key: view for key, view in views.items() if every or view.group in NOT_GREEN}
    known = {key.case for key in views}
    for name in cases:
        if name not in known:
            raise UsageError(f"the last run has no case {name!r}", hint=did_you_mean(name, known))
    return {key: view for key, view in views.items() if key.case in cases}


def _differences(
    settings: Settings, wanted: Mapping[CaseKey, CaseView], attempts: Mapping[CaseKey, Sequence[Attempt]]
) -> tuple[list[_Difference], int]:
    """Return differences in file order; print cases that cannot be compared and count them."""
    differences: list[_Difference] = []
    left, skipped = {*wanted}, 0
    for file, key, case in cases_in_files(settings, wanted):
        left.discard(key)
        if case.conversation_scenario is not None:
            continue
        made = [attempt for attempt in attempts.get(key, ()) if attempt.error is None]
        problem = "" if made else "the agent gave no answer in that run"
        if made and made[0].case_digest != planned_digest(case, UserSimulatorConfig()):
            problem = "the case is another than in that run: run it again"
        if problem:
            skipped += 1
            print_line(f"{case.eval_id}: {problem}", style="yellow")
        elif difference := _difference(key, file, case, made):
            differences.append(difference)
    if left:
        print_line(f"{plural(len(left), 'case')} of that run {'is' if len(left) == 1 else 'are'} in no eval file now")
    return differences, skipped + len(left)


def _difference(key: CaseKey, file: EvalFile, case: EvalCase, made: Sequence[Attempt]) -> _Difference | None:
    index, alike = most_frequent([attempt.turns for attempt in made])
    expected = expected_turns(case)
    names = {score.criterion for score in made[index].scores}
    calls_count = any(part in name for name in names for part in _TRAJECTORY_WORDS)
    proposed = proposed_turns(expected, made[index].turns, calls_count=calls_count)
    if same_turns(expected, proposed):
        return None
    return _Difference(key, file, case.line, expected, proposed, alike, len(made))


@dataclass
class _Review:
    """Shows the differences one by one and records which the user accepted."""

    settings: Settings
    found: Sequence[_Difference]
    written: list[_Difference] = field(default_factory=list)

    def ask(self) -> ExitCode:
        """Ask about each difference. Without a terminal show them all and raise UsageError."""
        can_ask = sys.stdin is not None and sys.stdin.isatty()
        for number, difference in enumerate(self.found, 1):
            self._show(difference, number)
            if can_ask and not self._decide(difference):
                return ExitCode.PASS
        if can_ask:
            return ExitCode.PASS
        raise UsageError("nothing is written, because nobody can be asked here", hint="--yes accepts what is shown")

    def accept_all(self) -> ExitCode:
        """Accept every difference; each file is written once."""
        for number, difference in enumerate(self.found, 1):
            self._show(difference, number)
        code = ExitCode.PASS
        for path in dict.fromkeys(difference.file.path for difference in self.found):
            own = {diff.key.case: diff for diff in self.found if diff.file.path == path}
            refusals = next(iter(own.values())).file.replace_many({name: diff.proposed for name, diff in own.items()})
            self.written += [diff for name, diff in own.items() if name not in refusals]
            for name, why in refusals.items():
                code = ExitCode.USAGE
                print_line(f"{name} is left as it is: {why}", style="red")
        return code

    def finish(self, result: RunResult, views: Mapping[CaseKey, CaseView], reason: str) -> None:
        """Print what was written; cases that the baseline has are also accepted in accept.yaml."""
        counts = Counter(relative(diff.file.path, self.settings.workspace) for diff in self.written)
        for path, count in counts.items():
            print_line(f"{path}: {plural(count, 'case')} updated")
        if left := len(self.found) - len(self.written):
            print_line(f"{plural(left, 'case')} left as {'it is' if left == 1 else 'they are'}")
        decision = result.decision
        if decision is None or decision.baseline is None or decision.accept == "ignore":
            return
        known = [diff.key for diff in self.written if views[diff.key].group is not Group.NEW]
        if known:
            _append(self.settings, _entries(result, known, reason))

    def _decide(self, difference: _Difference) -> bool:
        """Ask until the difference is accepted or skipped. Returns False when the user quits."""
        while True:
            print_line(_QUESTION, style="bold")
            match _pressed_key():
                case "a":
                    try:
                        difference.file.replace_expectations(difference.key.case, difference.proposed)
                        self.written.append(difference)
                    except AgentEvalError as error:
                        print_line(str(error), style="red", lines=True)
                    return True
                case "s":
                    return True
                case "q" | "" | "\x1b" | "\x04":
                    return False
                case "e":
                    difference = _edit_proposal(difference)
                    self._show(difference)

    def _show(self, difference: _Difference, number: int = 0) -> None:
        place = fmt.place(relative(difference.file.path, self.settings.workspace), difference.line)
        count = f"{number}/{len(self.found)}  " if number else ""
        print_line(f"\n{count}{difference.key.case}  {place}", style="bold", lines=True)
        if difference.alike < difference.runs:
            remark = f"{difference.alike} of {difference.runs} runs did this; they differ among themselves"
            print_line(remark, style="yellow", indent=2)
        for turn, (before, after) in enumerate(zip(difference.expected, difference.proposed, strict=True), 1):
            if before.comparable != after.comparable:
                title = f"turn {turn}: " if len(difference.expected) > 1 else ""
                print_line(f"{title}{before.user}", indent=2, limit=200)
                lines = list(_turn_lines(before, after))
                for line in lines[:_LINES_SHOWN]:
                    text = Text(log.terminal(f"{line[0]} {line[2:]}", 1_000), style=_SIGNS[line[0]])
                    print_wrapped(console(), text, 4)
                if len(lines) > _LINES_SHOWN:
                    print_line(f"… {plural(len(lines) - _LINES_SHOWN, 'line')} more", indent=4)


def _turn_lines(before: ExpectedTurn, after: ExpectedTurn) -> Iterator[str]:
    """Yield diff lines: sign, space, text."""
    calls = [[format_call(call, 400) for call in turn.calls or ()] for turn in (before, after)]
    if calls[0] != calls[1]:
        yield from _diff(*calls)
    elif before.comparable[0] != after.comparable[0]:  # they differ only beyond the shown length
        yield from (f"- {line}" for line in calls[0])
        yield from (f"+ {line}" for line in calls[1])
    yield from _diff(*((turn.answer or "").splitlines() for turn in (before, after)))


def _diff(before: list[str], after: list[str]) -> Iterator[str]:
    if before != after:
        for tag, *at in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            unchanged = tag == "equal"
            yield from (f"{' ' if unchanged else '-'} {line}" for line in before[at[0] : at[1]])
            yield from () if unchanged else (f"+ {line}" for line in after[at[2] : at[3]])


def _edit_proposal(difference: _Difference) -> _Difference:
    """Open the proposal in the user's editor. Returns the difference unchanged if the edited text is unusable."""
    text = json.dumps([turn.to_json() for turn in difference.proposed], indent=2, ensure_ascii=False) + "\n"
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        with tempfile.TemporaryDirectory(prefix="agent-eval-") as folder:
            file = Path(folder, "expected.json")
            file.write_text(text, encoding="utf-8")
            subprocess.run([*shlex.split(editor), str(file)], check=False)  # noqa: S603 - the user's own editor
            turns = json.loads(file.read_text(encoding="utf-8"))
        edited = tuple(turn.changed_by(new) for turn, new in zip(difference.proposed, turns, strict=True))
    except OSError as error:
        print_line(f"the editor {editor} cannot be started: {error.strerror or error}", style="red")
        return difference
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        print_line(f"that cannot be used: {error}", style="red")
        return difference
    return replace(difference, proposed=edited)


def _pressed_key() -> str:
    """Read one key press, "" at end of input. Ctrl-C still raises KeyboardInterrupt."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        return os.read(descriptor, 32).decode("utf-8", "replace").lower()
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
