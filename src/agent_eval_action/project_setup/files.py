"""Proposes the files that a gate needs in a project, next to what is there; and captures an agent's first cases."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from agent_eval_action.baseline.file_store import replace_committed
from agent_eval_action.capture import EvalFile, case_of_turns, converse
from agent_eval_action.config.discovery import CRITERIA_FILE
from agent_eval_action.config.loader import CONFIG_NAMES, GITHUB_CONFIG
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.diagnostics.reader import read_bytes
from agent_eval_action.errors import AgentEvalError, ConfigError, Unreadable, writing
from agent_eval_action.folders import relative
from agent_eval_action.project_setup.survey import CIS, CiName, ProjectSurvey
from agent_eval_action.results.evalset import SessionInput
from agent_eval_action.results.redaction import Redaction
from agent_eval_action.run.events import Event

_LARGEST: Final = 1 << 20
_DIFF_LINES: Final = 80
_WORKFLOW: Final = "agent-eval.yml"
_COMMENT: Final = "agent-eval-comment.yml"
_STEP: Final = "      - uses: org/agent-eval-action@v0 "
_ENV: Final = "        env:\n          GOOGLE_API_KEY: ${{ secrets.GOOGLE_API_KEY }}\n"
_SCHEMA: Final = (
    "# yaml-language-server: $schema=https://raw.githubusercontent.com/org/agent-eval-action/v0/schema/"
    "agent-eval.schema.json\n"
)
_OPTIONS: Final = """\
# Agents and eval files are found, and every option has a default.
max_time: 45m      # the default; a run that takes longer ends inconclusive, never as a pass
# max_cost: 2.50   # USD a run, as well
# strict: true     # a change that asks less of the agent is blocked, not only shown
"""
_CRITERIA: Final = {"criteria": {"tool_trajectory_avg_score": 1.0, "response_match_score": 0.3}}
"""For captured cases: the low response threshold accepts paraphrases; the comparison with main finds regressions."""
_VERTEX_STEP: Final = """\
      - if: ${{ !github.event.pull_request.head.repo.fork }} # GitHub gives a fork's change no identity
        uses: google-github-actions/auth@7c6bc770dae815cd3e89ee6cdf493a5fab2cc093 # v3.0.0
        with:
          workload_identity_provider: ${{ vars.GCP_WORKLOAD_IDENTITY_PROVIDER }}
          service_account: ${{ vars.GCP_SERVICE_ACCOUNT }}
"""
_VERTEX: Final = {
    "GOOGLE_GENAI_USE_VERTEXAI": '"true"',
    "GOOGLE_CLOUD_PROJECT": "${{ vars.GOOGLE_CLOUD_PROJECT }}",
    "GOOGLE_CLOUD_LOCATION": "${{ vars.GOOGLE_CLOUD_LOCATION || 'global' }}",
}
VERTEX_VARIABLES: Final = ("GCP_WORKLOAD_IDENTITY_PROVIDER", "GCP_SERVICE_ACCOUNT", "GOOGLE_CLOUD_PROJECT")
"""Variables that the workflow of an agent on Vertex AI needs in the repository's settings."""
_FORK: Final = """\
        with:
          # who cannot comment leaves that to agent-eval-comment.yml
          comment: ${{ (github.event.pull_request.head.repo.id != github.event.repository.id || \
github.actor == 'dependabot[bot]') && 'off' || 'update' }}
      - if: always()
        uses: actions/upload-artifact@043fb46d1a93c77aae656e7c1c64a875d1fc6a0a # v7.0.1
        with:
          name: agent-eval
          path: .agent-eval/out/results.json
          include-hidden-files: true # .agent-eval begins with a dot
          retention-days: 7
"""


@dataclass(frozen=True, slots=True)
class ProposedFile:
    """A proposed file. ``before``: the existing text, or None. ``extends``: all existing lines are kept."""

    path: Path
    text: str
    before: str | None = None
    extends: bool = False

    @property
    def is_same(self) -> bool:
        """Whether the file is up to date, apart from line ends, which git may have converted."""
        return self.before is not None and self.before.splitlines() == self.text.splitlines()

    @property
    def overwrites(self) -> bool:
        """Whether writing the file would lose existing text."""
        return self.before is not None and not self.is_same and not self.extends

    def diff(self, workspace: Path) -> Iterator[str]:
        """Yield the first lines of the diff, and how many more there are."""
        name = relative(self.path, workspace)
        old, new = (self.before or "").splitlines(), self.text.splitlines()
        lines = list(difflib.unified_diff(old, new, name, f"{name} (proposed)", lineterm=""))
        yield from lines[:_DIFF_LINES]
        if len(lines) > _DIFF_LINES:
            yield f"… and {len(lines) - _DIFF_LINES} more lines"

    def write(self, workspace: Path) -> None:
        """Write the file atomically. Raises OutputError, and ConfigError if a symbolic link is in the way."""
        with writing(relative(self.path, workspace)):
            replace_committed(self.path, self.text, workspace)


def proposed_files(survey: ProjectSurvey, settings: Settings, ci: CiName, *, public: bool) -> tuple[ProposedFile, ...]:
    """Propose the configuration, the CI's files and .gitignore. Raises ConfigError for an unreadable file."""
    workspace = settings.workspace
    found = [_proposed(_config_path(settings), _configuration(survey), workspace)]
    if ci == "github" and {*survey.gates} - {_WORKFLOW, _COMMENT}:
        pass  # a second workflow would run everything twice
    elif ci == "github":
        folder = workspace / ".github" / "workflows"
        found.append(_proposed(folder / _WORKFLOW, _github(survey, public=public), workspace))
        if public:
            found.append(_proposed(folder / _COMMENT, _recipe("github-comment.yml"), workspace))
    else:
        found.append(_other_ci(ci, survey, workspace))
    return (*found, _gitignore(survey, workspace, ci))


def criteria_file(eval_file: Path, workspace: Path) -> ProposedFile:
    """Return the criteria file for captured cases, in the folder of ``eval_file``."""
    return _proposed(eval_file.with_name(CRITERIA_FILE), json.dumps(_CRITERIA, indent=2) + "\n", workspace)


def _proposed(path: Path, text: str, workspace: Path) -> ProposedFile:
    return ProposedFile(path, text, _text_of(path, workspace))


def _text_of(path: Path, workspace: Path) -> str | None:
    if not path.exists() and not path.is_symlink():
        return None
    try:
        return read_bytes(path, workspace, _LARGEST).decode("utf-8")
    except (Unreadable, UnicodeDecodeError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise ConfigError(f"{relative(path, workspace)} cannot be read: {why}") from None


def _config_path(settings: Settings) -> Path:
    places = (*(settings.start / name for name in CONFIG_NAMES), settings.workspace / GITHUB_CONFIG)
    return settings.config or next((place for place in places if place.exists()), places[0])


def _configuration(survey: ProjectSurvey) -> str:
    """Return a commented configuration that names the secrets in agents' code: only named ones reach an agent."""
    named = sorted({name for names in survey.variables.values() for name in names if name in survey.secrets})
    return _SCHEMA + _OPTIONS + (f"env: [{', '.join(named)}] # the agent's code asks for them\n" if named else "")


def _github(survey: ProjectSurvey, *, public: bool) -> str:
    text = _recipe("github.yml").replace("[main]", f"[{survey.branch}]")
    given = {name: f"${{{{ secrets.{name} }}}}" for name in survey.secrets} | (_VERTEX if survey.vertex else {})
    env = "".join(f"          {name}: {value}\n" for name, value in given.items())
    text = text.replace(_ENV, f"        env:\n{env}" if env else "")
    if survey.vertex:
        text = text.replace(_STEP, _VERTEX_STEP + _STEP)
        text = re.sub(
            r"(    permissions:\n)", r"\1      id-token: write # proves to Google Cloud whose job this is\n", text
        )
    if public:
        text = text.replace("  main:\n", f"{_FORK}  main:\n")
    return text


def _other_ci(ci: CiName, survey: ProjectSurvey, workspace: Path) -> ProposedFile:
    """Return the recipe of another CI: as its main file, or next to it if the project already has that file."""
    beside = CIS[ci].beside
    text = _with_keys(_recipe(CIS[ci].recipe), ci, survey)
    path = workspace / CIS[ci].files[0]
    there = _text_of(path, workspace)
    if there is None or "agent-eval run" in there or not beside:
        return ProposedFile(path, text, there)
    if ci == "gitlab":  # the including file defines the stages; test and .post always exist
        text = text.replace("stages: [test, comment]\n\n", "").replace("stage: comment", "stage: .post")
    return _proposed(workspace / beside, text, workspace)


def _with_keys(text: str, ci: CiName, survey: ProjectSurvey) -> str:
    text = text.replace("[main]", f"[{survey.branch}]").replace("    main:\n", f"    {survey.branch}:\n")
    text = text.replace(
        "{BITBUCKET_PR_DESTINATION_BRANCH:-main}", f"{{BITBUCKET_PR_DESTINATION_BRANCH:-{survey.branch}}}"
    )
    line = {
        "jenkins": "    {name} = credentials('{id}')\n",
        "azure": "      {name}: $({name})\n",
    }.get(ci, "")
    lines = "".join(line.format(name=name, id=name.lower().replace("_", "-")) for name in survey.secrets)
    block = {"jenkins": "  environment {{\n{}  }}\n", "azure": "    env:\n{}"}.get(ci, "{}")
    shown = block.format(line.format(name="GOOGLE_API_KEY", id="google-api-key"))
    return text.replace(shown, block.format(lines) if lines else "") if line else text


def _gitignore(survey: ProjectSurvey, workspace: Path, ci: CiName) -> ProposedFile:
    """Return the project's .gitignore with missing entries added, for secrets and for what agents and tools leave."""
    path = workspace / ".gitignore"
    before = _text_of(path, workspace)
    wanted = [".env", ".venv/", "__pycache__/", ".adk/"]
    wanted += ["gha-creds-*.json"] * (survey.vertex and ci == "github") + [".agent-eval-venv/"] * (ci == "jenkins")
    text = before or ""
    known = {line.strip().strip("/") for line in text.splitlines()}
    lacking = [line for line in wanted if line.strip("/") not in known]
    if lacking:
        end = "\r\n" if "\r\n" in text else "\n"
        text += ("" if text.endswith("\n") or not text else end) + "".join(line + end for line in lacking)
    return ProposedFile(path, text, before, extends=True)


def _recipe(name: str) -> str:
    return files(__package__).joinpath("recipes", name).read_text("utf-8")


# --- the first cases of an agent that has none -----------------------------------------------------

STARTERS: Final = (
    ("what-it-does", "Hello! What can you help me with?"),
    ("an-example", "Show me an example of the most useful thing you can do."),
    ("out-of-scope", "Write a poem about the sea."),
)
"""Case names and user messages: the agent's purpose, a tool call, and a request out of its scope."""


@dataclass(frozen=True, slots=True)
class StarterCases:
    """The eval file and names of an agent's first cases; ``error``: what went wrong. ``folder``: the agent's."""

    agent: str
    folder: Path
    path: Path
    cases: tuple[str, ...] = ()
    error: str = ""


async def capture_starter_cases(
    settings: Settings,
    agent: AgentSettings,
    environ: Mapping[str, str],
    emit: Callable[[Event], None],
    redaction: Redaction,
) -> StarterCases:
    """Send an agent the starter messages and save its answers and calls in a new eval file. Raises OutputError."""
    path = starter_file(agent, settings)
    session = SessionInput(app_name=agent.path.name, user_id="user")
    conversations = [[message] for _, message in STARTERS]
    try:
        attempts = await converse(
            settings, agent, conversations, environ=environ, emit=emit, session=session, redaction=redaction
        )
    except AgentEvalError as error:
        return StarterCases(agent.name, agent.path, path, error=str(error))
    failed = [attempt.error.message for attempt in attempts if attempt.error]
    cases = [
        case_of_turns(
            attempt.turns,
            STARTERS[int(attempt.case)][0],
            attempt.final_session_state,
            session=session,
            redaction=redaction,
        )
        for attempt in attempts
        if attempt.error is None and any(turn.response_text or turn.tool_calls() for turn in attempt.turns)
    ]
    if not cases:
        return StarterCases(agent.name, agent.path, path, error=next(iter(failed), "it answered nothing"))
    path.parent.mkdir(parents=True, exist_ok=True)
    made = EvalFile(path, settings.workspace).add(cases)
    return StarterCases(agent.name, agent.path, path, made, next(iter(failed), ""))


def starter_file(agent: AgentSettings, settings: Settings) -> Path:
    """Return the path for the first cases: ``evals/`` next to the agent's folder, or in it if it is the workspace."""
    beside = agent.path if agent.path == settings.workspace else agent.path.parent
    return beside / "evals" / f"{agent.path.name}.evalset.json"
