"""``agent-eval capture``: turn a live or a recorded conversation with the agent into an eval case."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from rich.text import Text

from agent_eval_action.agents.base import SessionRequest
from agent_eval_action.capture import EvalFile, case_of_turns, free_name
from agent_eval_action.capture.conversations import LiveConversation, has_failed, open_agent, past_conversations
from agent_eval_action.ci.log import neutralize
from agent_eval_action.cli import log
from agent_eval_action.cli.log import console, print_line, print_wrapped
from agent_eval_action.cli.session import cases_in_files, settings_for
from agent_eval_action.config.discovery import DiscoveredSet, no_agent_found
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.diagnostics.reader import did_you_mean, plural
from agent_eval_action.diagnostics.suggestions import shortlist
from agent_eval_action.errors import AgentEnvironmentError, AgentEvalError, ExitCode, UsageError
from agent_eval_action.folders import relative
from agent_eval_action.reports.verdict import quoted_case
from agent_eval_action.results.evalset import FunctionCall, Invocation, JsonObject, SessionInput
from agent_eval_action.results.run_result import Attempt, AttemptError
from agent_eval_action.results.trajectory import format_call
from agent_eval_action.run.events import Event, Notice
from agent_eval_action.run.loader import discover_eval_files
from agent_eval_action.run.resources import agent_secrets

_HELP: Final = "/undo takes the last turn back, /save [NAME] keeps the conversation as a case, /quit ends without it"
_ANSWER_LIMIT: Final = 20_000
_WORDS: Final = re.compile(r"[^\W_]+")
_NAME_LENGTH: Final = 40
_NAMES_SHOWN: Final = 20

_T = TypeVar("_T")


def capture_command(
    flags: Mapping[str, Any],
    *,
    into: Path | None,
    name: str,
    source: Path | None,
    cases: Sequence[str],
    state: str,
    force: bool,
) -> ExitCode:
    """Save a conversation as a case: one held now, or those of the file ``source`` (``cases``: only these)."""
    settings = settings_for(flags).settings
    if name and len(cases) > 1:
        raise UsageError("one name is given for several cases", hint="without --name each keeps the one it has")
    found = discover_eval_files(settings, may_lack=True)
    if not found.agents:
        raise no_agent_found(settings)
    if len(found.agents) > 1:
        names = shortlist(found.agents, _NAMES_SHOWN, lambda agent: agent.name)
        raise UsageError(f"there are {len(found.agents)} agents: {names}", hint="name one of them: --agent DIR")
    agent = found.agents[0]
    target = _Target(settings, agent, _file_of(into, settings, agent, found.sets), name, state, force)
    target.file.refuse_unless_extensible()
    if name:  # before the conversation costs anything
        target.refuse_name(name)
    if source is not None:
        return _from_file(target, source, cases)
    if cases:
        raise UsageError("--case names a conversation of a file", hint="--from FILE")
    return _Dialogue(target).run()


def _file_of(into: Path | None, settings: Settings, agent: AgentSettings, sets: Sequence[DiscoveredSet]) -> EvalFile:
    """Return the file to add cases to: ``--into``, else the agent's only eval file, else a new one."""
    known = {found.path: found for found in sets}
    if into is not None:
        path = Path(os.path.abspath(into))  # noqa: PTH100 - keeps links, which the writer refuses
    elif len(own := {found.path for found in sets if found.agent.name == agent.name}) > 1:
        names = shortlist(sorted(relative(path, settings.workspace) for path in own), _NAMES_SHOWN)
        raise UsageError(f"{agent.name} has {len(own)} eval files: {names}", hint="name one of them: --into FILE")
    else:
        path = next(iter(own), agent.path / f"{agent.path.name}.evalset.json")
    return EvalFile.of_set(known[path], settings.workspace) if path in known else EvalFile(path, settings.workspace)


@dataclass
class _Target:
    """The eval file that receives the cases, and the command's options for them."""

    settings: Settings
    agent: AgentSettings
    file: EvalFile
    name: str
    state: str
    force: bool
    saved: list[str] = field(default_factory=list)

    def session(self) -> SessionInput:
        try:
            state = json.loads(self.state or "{}")
        except ValueError:
            state = None
        if not isinstance(state, dict):
            raise UsageError("--state is a JSON object", hint="""--state '{"plan": "basic"}'""")
        return SessionInput(app_name=self.agent.path.name, user_id="user", state=state)

    def refuse_name(self, name: str) -> None:
        """Raise UsageError for a name with unprintable characters, or one that the file already has."""
        if not name.isprintable():
            raise UsageError(f"the name {name!a} has characters that nothing shows", hint="give it another name")
        if self.free_name(name) != name:
            shown = relative(self.file.path, self.settings.workspace)
            raise UsageError(f"{shown} has a case {name!r} already", hint="give this one another name")

    def free_name(self, wanted: str) -> str:
        """Return ``wanted``, made unique among the cases of the file."""
        taken: tuple[str, ...] = ()
        if os.path.lexists(self.file.path):
            taken = tuple(case.eval_id for case in self.file.load().eval_set.eval_cases)
        return free_name(wanted, taken)

    def save(
        self, turns: Sequence[Invocation], name: str, final_state: JsonObject | None, session: SessionInput
    ) -> None:
        """Add a case and print where. Raises UsageError for its name, and the errors of ``EvalFile.add``."""
        self.refuse_name(name)
        case = case_of_turns(turns, name, final_state, session=session)
        redacted = log.redaction.value(case)
        self.file.path.parent.mkdir(parents=True, exist_ok=True)
        (made,) = self.file.add([redacted], force=self.force)
        self.saved.append(made)
        calls = sum(len(turn.tool_calls()) for turn in turns)
        shown = relative(self.file.path, self.settings.workspace)
        print_line(f"saved: {shown} › {made} ({plural(len(turns), 'turn')}, {plural(calls, 'tool call')})")
        if redacted is not case:
            print_line("secrets in it are replaced by ***, and what `redact` names by [redacted]", style="yellow")

    def print_next_step(self) -> None:
        if not self.saved:
            return
        path = os.path.relpath(self.file.path)
        words = shlex.quote(f"{path}:{','.join(map(quoted_case, self.saved))}")
        print_line(f"run it: agent-eval run {words}")
        sets = discover_eval_files(self.settings, may_lack=True).sets
        if self.file.path not in {found.path for found in sets}:
            print_line("no run finds this file by itself: name it under evals in agent-eval.yaml", style="yellow")


def _from_file(target: _Target, source: Path, wanted: Sequence[str]) -> ExitCode:
    if not source.exists():
        raise UsageError(f"there is no file {source}")
    log.hide(agent_secrets([target.agent], os.environ, target.settings.workspace))
    log.redaction.hide_matches(target.settings.redact)
    found = past_conversations(source)
    if missing := [name for name in wanted if name not in {past.case for past in found}]:
        known = [past.case for past in found]
        raise UsageError(f"{source} has no case {missing[0]!r}", hint=did_you_mean(missing[0], known))
    chosen = [past for past in found if (past.case in wanted if wanted else has_failed(past))] or [*found]
    if len(chosen) > 1 and not wanted:
        names = shortlist(chosen, _NAMES_SHOWN, lambda past: past.case)
        what = "failed cases" if has_failed(chosen[0]) else "conversations"
        raise UsageError(f"{source} holds {len(chosen):,} {what}: {names}", hint="name those you mean: --case NAME")
    for past in chosen:
        name = target.name or target.free_name(past.case)
        target.save(past.turns, name, past.final_session_state, _session_of(past, target))
        if has_failed(past):
            print_line("it failed in that run, and expects now what the agent did: correct what it expects")
    target.print_next_step()
    return ExitCode.PASS


def _session_of(past: Attempt, target: _Target) -> SessionInput:
    """Return the session input of the eval case that was run, if its file has it, else the command's."""
    if not target.state:
        for _, _, case in cases_in_files(target.settings, {past.key.case_key}):
            if case.session_input is not None:
                return case.session_input
    return target.session()


class _AgentThread:
    """Runs the agent's event loop in a thread; the main thread reads the terminal and receives Ctrl-C."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="agent", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Return the coroutine's result. Ctrl-C cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @contextlib.contextmanager
    def entered(self, manager: contextlib.AbstractAsyncContextManager[_T]) -> Iterator[_T]:
        """Enter an asynchronous context manager on the loop."""
        value = self.run(manager.__aenter__())
        try:
            yield value
        finally:
            self.run(manager.__aexit__(None, None, None))


class _Dialogue:
    """Reads messages and commands, shows what the agent does, and saves the conversation on request."""

    def __init__(self, target: _Target) -> None:
        self._target = target
        self._out = console()
        self._is_terminal = sys.stdin is not None and sys.stdin.isatty()
        self._session = target.session()
        self._thread = _AgentThread()
        self._conversation: LiveConversation
        self._kept = self._shown = 0
        self._failed = ExitCode.PASS
        """The first failure; it becomes the exit code when input is piped and nobody reads the screen."""

    def run(self) -> ExitCode:
        """Talk until the user ends. Exit 0, or 130 if an interrupt discarded something."""
        target = self._target
        opening = open_agent(target.settings, target.agent, os.environ, self._emit, log.redaction)
        with self._thread, self._thread.entered(opening) as group:
            with self._waiting("the agent starts"):
                errors = self._thread.run(group.start_errors())
            for name, error in errors.items():
                raise AgentEnvironmentError(f"{name} does not start: {error.message}")
            names = self._session.app_name, self._session.user_id, None
            request = SessionRequest(*names, dict(self._session.state), on_call=self._show_call)
            self._conversation = LiveConversation(group.drivers[target.agent.name], request)
            shown = relative(target.file.path, target.settings.workspace)
            print_line(f"talking to {target.agent.name}; cases go to {shown}", style="dim")
            if self._is_terminal:
                print_line(_HELP, style="dim")
            signal.signal(signal.SIGTERM, _leave)
            try:
                code = self._talk()
            finally:
                self._thread.run(self._conversation.end())
        target.print_next_step()
        return code if self._is_terminal else code or self._failed

    def _talk(self) -> ExitCode:
        while True:
            try:
                line = self._read("you › ")
                if line is None:
                    return self._leave(ExitCode.PASS)
                if line.startswith("/"):
                    if self._obey(*line[1:].split(maxsplit=1)):
                        return ExitCode.PASS
                elif line.strip():
                    self._say(line)
            except KeyboardInterrupt:
                return self._leave(ExitCode.INTERRUPTED)

    def _read(self, prompt: str) -> str | None:
        """Return the next line without its line end; None at end of input."""
        if not self._is_terminal:
            line = sys.stdin.readline() if sys.stdin is not None else ""
            return line.rstrip("\n") if line else None
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - gives input() its keys and its history
        try:
            return input(prompt)
        except EOFError:
            print(file=sys.stderr)
            return None

    def _obey(self, name: str = "", argument: str = "") -> bool:
        """Execute a command. Returns True if it ends the dialogue."""
        turns = self._conversation.turns
        if name in {"quit", "exit", "q"}:
            return True
        if name not in {"undo", "save"}:
            print_line(_HELP)
        elif not turns:
            print_line("nothing was said yet")
        elif name == "undo":
            with self._waiting("the agent is asked the messages before it again"):
                error = self._thread.run(self._conversation.undo())
            self._show_error(error)
            print_line(f"the conversation has {plural(len(self._conversation.turns), 'turn')}", style="dim")
        else:
            self._save(argument.strip())
        return False

    def _say(self, message: str) -> None:
        self._shown = 0
        with self._waiting("the agent is at it"):
            turn = self._thread.run(self._conversation.say(message))
        if isinstance(turn, AttemptError):
            self._show_error(turn)
            return
        for call in turn.tool_calls()[self._shown :]:  # not shown yet if the agent does not stream events
            self._show_call(call)
        print_line(f"agent › {turn.response_text or '(no text)'}", lines=True, limit=_ANSWER_LIMIT)

    def _show_call(self, call: FunctionCall) -> None:
        self._shown += 1
        print_wrapped(self._out, Text(log.terminal(f"→ {format_call(call, 300)}"), style="cyan"), 2)

    def _show_error(self, error: AttemptError | None) -> None:
        if error is not None:
            print_line(f"the agent failed, and this turn is not kept: {error.message}", style="red")
            self._failed = self._failed or ExitCode.INCONCLUSIVE

    def _save(self, name: str = "") -> bool:
        """Save the conversation and begin another one. Returns False if it cannot be saved."""
        conversation, target = self._conversation, self._target
        wanted = name or (target.name if not self._kept else "")
        turns = list(conversation.turns)
        try:
            state = self._thread.run(conversation.end())
            target.save(turns, wanted or target.free_name(_name_of(turns)), state, self._session)
        except AgentEvalError as error:
            print_line(f"not saved: {error}", style="red", lines=True)
            self._failed = self._failed or error.exit_code
            return False
        self._kept += 1
        conversation.turns.clear()
        return True

    def _leave(self, code: ExitCode) -> ExitCode:
        """At end of input offer to save the conversation; piped input is saved without asking."""
        if not self._conversation.turns:
            return code if self._is_terminal and not self._kept else ExitCode.PASS
        if not self._is_terminal:
            if code is ExitCode.PASS:
                self._save()
            return code
        count = plural(len(self._conversation.turns), "turn")
        while True:  # asks again for a name that is taken
            try:
                answer = input(f"\nkeep this conversation of {count} as a case? [y/N, or a name] ").strip()
            except (EOFError, KeyboardInterrupt):
                answer = ""
                print(file=sys.stderr)
            if answer.lower() in {"", "n", "no"}:
                print_line("not kept")
                return code
            if self._save("" if answer.lower() in {"y", "yes"} else answer):
                return ExitCode.PASS

    def _waiting(self, text: str) -> contextlib.AbstractContextManager[object]:
        return self._out.status(text, spinner="dots") if self._out.is_terminal else contextlib.nullcontext()

    def _emit(self, event: Event) -> None:
        if isinstance(event, Notice) and event.level != "setup":
            print_line(neutralize(event.text), style="yellow" if event.level == "warning" else None, lines=True)


def _leave(*_: object) -> None:
    raise SystemExit(ExitCode.INTERRUPTED)  # asks nothing: the sender of the signal cannot answer


def _name_of(turns: Sequence[Invocation]) -> str:
    words = "-".join(_WORDS.findall(turns[0].user_content.text[:200].lower()))
    if len(words) > _NAME_LENGTH:
        words = words[:_NAME_LENGTH].rpartition("-")[0] or words[:_NAME_LENGTH]
    return words or "case"
