"""Sets up a project: surveys it, proposes the files that a gate needs, and captures an agent's first cases.

The survey reads files and runs none of them.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal

from dotenv import dotenv_values

from agent_eval_action.baseline.stores import replace_committed
from agent_eval_action.capture import EvalFile, case_of_turns, converse
from agent_eval_action.config.discovery import CRITERIA_FILE, Discovery, no_agent_found
from agent_eval_action.config.job_variables import is_job_variable
from agent_eval_action.config.loader import CONFIG_NAMES, GITHUB_CONFIG
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.config.walk import texts_below
from agent_eval_action.diagnostics.reader import read_bytes
from agent_eval_action.environments.lock import find_lock
from agent_eval_action.environments.variables import agent_environ, names_in_code
from agent_eval_action.errors import AgentEnvironmentError, AgentEvalError, ConfigError, Unreadable, writing
from agent_eval_action.folders import folders_upwards, relative
from agent_eval_action.git.repository import Repository
from agent_eval_action.results.evalset import SessionInput
from agent_eval_action.results.redaction import Redaction
from agent_eval_action.run.events import Event

CiName = Literal["github", "gitlab", "jenkins", "azure", "bitbucket"]


@dataclass(frozen=True, slots=True)
class CiKind:
    """A CI: its name, the files it reads, and the hosts in the URL of its remotes.

    ``recipe`` is written to the first file, or to ``beside`` if the first file exists; ``beside`` is "" if the CI
    reads only one file. ``include``: what the user has to do with ``beside``.
    """

    title: str
    files: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    recipe: str = ""
    beside: str = ""
    include: str = ""


CIS: Final[Mapping[CiName, CiKind]] = {
    "github": CiKind("GitHub Actions", (".github/workflows",), ("github",)),
    "gitlab": CiKind(
        "GitLab",
        (".gitlab-ci.yml",),
        ("gitlab",),
        "gitlab.yml",
        ".gitlab/agent-eval.yml",
        "include it in .gitlab-ci.yml: include: [{local: .gitlab/agent-eval.yml}]",
    ),
    "jenkins": CiKind(
        "Jenkins",
        ("Jenkinsfile",),
        recipe="Jenkinsfile",
        beside="Jenkinsfile.agent-eval",
        include="make a multibranch job whose script path is Jenkinsfile.agent-eval",
    ),
    "azure": CiKind(
        "Azure Pipelines",
        ("azure-pipelines.yml", ".azure-pipelines"),
        ("dev.azure", "visualstudio"),
        "azure.yml",
        "azure-pipelines.agent-eval.yml",
        "make a pipeline of azure-pipelines.agent-eval.yml",
    ),
    "bitbucket": CiKind("Bitbucket", ("bitbucket-pipelines.yml",), ("bitbucket",), "bitbucket.yml"),
}
_MODEL: Final = re.compile(
    rb"[\"'](?:models/)?(gemini|gpt|claude|[a-z_0-9]+(?=/))[-/\w.:]*[\"']|\bmodel:\s*([a-z_0-9]+)"
)
_KEYS: Final = {
    "gemini": "GOOGLE_API_KEY",
    "gpt": "OPENAI_API_KEY",
    "claude": "ANTHROPIC_API_KEY",
    "azure": "AZURE_API_KEY",
    "huggingface": "HUGGINGFACE_API_KEY",
    "together_ai": "TOGETHERAI_API_KEY",
} | {
    name.lower(): f"{name}_API_KEY"
    for name in ("OPENAI", "ANTHROPIC", "COHERE", "DEEPSEEK", "GROQ", "MISTRAL", "OPENROUTER", "PERPLEXITY", "XAI")
}
"""The variable that holds the API key, by prefix of the model's name."""
_VERTEX_SWITCHES: Final = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")
_VERTEX_IN_CODE: Final = re.compile(
    rb"GOOGLE_GENAI_USE_(?:VERTEXAI|ENTERPRISE)[\"'\]\s,=)]+[\"']?(?:true|1)\b", re.IGNORECASE
)
_SECRET: Final = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)(?:$|_)")
_USED_SECRET: Final = re.compile(rb"\bsecrets\.([A-Za-z_][A-Za-z0-9_]*)")
_BRANCH: Final = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*")
_BYTES: Final = 1 << 18
_FILES: Final = 2_000


@dataclass(frozen=True, slots=True)
class ProjectSurvey:
    """What was found in a project.

    By agent: ``packages``, the file that names its packages; ``lacking``, why it has none; ``variables``, those named
    in its code or .env that reach it only if the configuration names them. ``keys``: variables with API keys of agents'
    and judges' models. ``known``: secrets that the workflows use. ``gates``: workflows that run the action.
    ``vertex``: the model is on Vertex AI.
    """

    agents: tuple[AgentSettings, ...]
    eval_files: tuple[Path, ...]
    packages: Mapping[str, str]
    lacking: Mapping[str, str]
    keys: tuple[str, ...]
    variables: Mapping[str, tuple[str, ...]]
    known: frozenset[str]
    gates: tuple[str, ...]
    vertex: bool
    cis: tuple[CiName, ...]
    branch: str

    @property
    def secrets(self) -> tuple[str, ...]:
        """The variables that a job needs as secrets."""
        own = {name for names in self.variables.values() for name in names if _SECRET.search(name)}
        return (*self.keys, *sorted(own - {*self.keys}))


def survey_project(
    settings: Settings, found: Discovery, environ: Mapping[str, str], judges: Iterable[str] = ()
) -> ProjectSurvey:
    """Survey the agents in ``found`` and their surroundings. Raises EvalFileError if there is no agent.

    ``judges``: models that judge or simulate users.
    """
    if not found.agents:
        raise no_agent_found(settings)
    workspace, repository = settings.workspace, Repository(settings.workspace, environ)
    packages, lacking = dict[str, str](), dict[str, str]()
    for agent in found.agents:
        if agent.driver not in {"adk", "python"}:  # others start what they need themselves
            continue
        try:
            if lock := find_lock(agent.path, workspace):
                packages[agent.name] = relative(lock.path, workspace)
            else:
                why = "nothing names its packages: CI needs uv.lock, pyproject.toml or requirements.txt"
                lacking[agent.name] = why
        except AgentEnvironmentError as error:
            lacking[agent.name] = str(error)
    dotenv = {agent.name: _dotenv(agent.path, workspace) for agent in found.agents}
    given = {name: value for values in dotenv.values() for name, value in values.items()}
    code = b"\n".join(text for agent in found.agents for _, text in _texts(agent.path))
    workflows = {path.name: text for path, text in _texts(workspace / ".github" / "workflows", (".yml", ".yaml"))}
    vertex = any((given.get(name) or "").lower() in {"1", "true"} for name in _VERTEX_SWITCHES)
    vertex = vertex or _VERTEX_IN_CODE.search(code) is not None
    keys = {_KEYS[name] for match in _MODEL.findall(code) for part in match if (name := part.decode()) in _KEYS}
    keys |= {"OPENAI_API_KEY" if name.startswith("openai/") else "GOOGLE_API_KEY" for name in judges}
    keys |= {*_KEYS.values()} & given.keys()
    keys |= {"GOOGLE_API_KEY"} if "GEMINI_API_KEY" in given else set()
    keys -= {"GOOGLE_API_KEY"} if vertex else set()
    return ProjectSurvey(
        agents=found.agents,
        eval_files=tuple(sorted({each.path for each in found.sets})),
        packages=packages,
        lacking=lacking,
        keys=tuple(sorted(keys)),
        variables={agent.name: _variables_to_configure(agent, dotenv[agent.name]) for agent in found.agents},
        known=frozenset(name.decode() for text in workflows.values() for name in _USED_SECRET.findall(text)),
        gates=tuple(
            name for name, text in workflows.items() if b"/agent-eval-action" in text and b"pull_request" in text
        ),
        vertex=vertex,
        cis=_detect_cis(workspace, repository),
        branch=_main_branch(repository),
    )


def _dotenv(folder: Path, workspace: Path) -> Mapping[str, str | None]:
    """Return the variables of the nearest .env in or above an agent's folder."""
    candidates = (place / ".env" for place in folders_upwards(folder, workspace))
    file = next((file for file in candidates if file.is_file()), None)
    try:
        return dotenv_values(file, interpolate=False) if file and file.stat().st_size <= _BYTES else {}
    except (OSError, ValueError):
        return {}


def _texts(folder: Path, suffixes: tuple[str, ...] = (".py", ".yaml", ".yml")) -> Iterator[tuple[Path, bytes]]:
    return texts_below(folder, suffixes, max_entries=_FILES, size=_BYTES)


def _variables_to_configure(agent: AgentSettings, dotenv: Iterable[str]) -> tuple[str, ...]:
    """Return variables named in the agent's code or .env that reach the agent only if the configuration names them."""
    secrets = {name for name in dotenv if _SECRET.search(name) and name.isascii() and name.isidentifier()}
    asked = {name for name in names_in_code(agent.path) | secrets if not is_job_variable(name)}
    return tuple(sorted(asked - agent_environ(dict.fromkeys(asked, "x")).keys()))


def _detect_cis(workspace: Path, repository: Repository) -> tuple[CiName, ...]:
    """Detect the CI by its files, else by the URL of the remote; () if neither tells."""
    found = [name for name, ci in CIS.items() if any((workspace / file).exists() for file in ci.files)]
    if found:
        return tuple(found)
    address = repository.setting("--get", "remote.origin.url").lower()
    return tuple(name for name, ci in CIS.items() if any(host in address for host in ci.hosts))[:1]


def _main_branch(repository: Repository) -> str:
    head = repository.run("symbolic-ref", "--short", "refs/remotes/origin/HEAD")
    name = head.text.strip().removeprefix("origin/") if head.ok else ""
    return name if _BRANCH.fullmatch(name) else "main"


# --- the files of a gate ---------------------------------------------------------------------------

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
_SECRETS_OF: Final[Mapping[CiName, tuple[str, str, str]]] = {
    "jenkins": ("  environment {\n", "    {name} = credentials('{id}')\n", "  }\n"),
    "azure": ("    env:\n", "      {name}: $({name})\n", ""),
}
"""How a recipe names its secrets: the lines before them, the line of one, the line after them."""
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
    workspace, folder = settings.workspace, settings.workspace / ".github" / "workflows"
    places = (*(settings.start / name for name in CONFIG_NAMES), workspace / GITHUB_CONFIG)
    config = settings.config or next((place for place in places if place.exists()), places[0])
    found = [_proposed(config, _configuration(survey), workspace)]
    if ci != "github":
        found.append(_other_ci(ci, survey, workspace))
    elif {*survey.gates} <= {_WORKFLOW, _COMMENT}:  # a second workflow would run everything twice
        found.append(_proposed(folder / _WORKFLOW, _github(survey, public=public), workspace))
        found += [_proposed(folder / _COMMENT, _recipe("github-comment.yml"), workspace)] if public else []
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


def _configuration(survey: ProjectSurvey) -> str:
    # only variables that the configuration names reach an agent
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
    kind, branch = CIS[ci], survey.branch
    text = _recipe(kind.recipe).replace("[main]", f"[{branch}]").replace("    main:\n", f"    {branch}:\n")
    text = text.replace("{BITBUCKET_PR_DESTINATION_BRANCH:-main}", f"{{BITBUCKET_PR_DESTINATION_BRANCH:-{branch}}}")
    if ci in _SECRETS_OF:
        begin, line, end = _SECRETS_OF[ci]
        lines = [line.format(name=name, id=name.lower().replace("_", "-")) for name in survey.secrets]
        shown = begin + line.format(name="GOOGLE_API_KEY", id="google-api-key") + end
        text = text.replace(shown, "".join([begin, *lines, end]) if lines else "")
    path = workspace / kind.files[0]
    there = _text_of(path, workspace)
    if there is None or "agent-eval run" in there or not kind.beside:
        return ProposedFile(path, text, there)
    if ci == "gitlab":  # the including file defines the stages; test and .post always exist
        text = text.replace("stages: [test, comment]\n\n", "").replace("stage: comment", "stage: .post")
    return _proposed(workspace / kind.beside, text, workspace)


def _gitignore(survey: ProjectSurvey, workspace: Path, ci: CiName) -> ProposedFile:
    """Propose the project's .gitignore, extended for secrets and for what agents and tools leave."""
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
    """The eval file and names of an agent's first cases; ``error``: what went wrong."""

    agent: AgentSettings
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
        return StarterCases(agent, path, error=str(error))
    failure = next((attempt.error.message for attempt in attempts if attempt.error), "")
    cases = [
        case_of_turns(
            made.turns, STARTERS[int(made.case)][0], made.final_session_state, session=session, redaction=redaction
        )
        for made in attempts
        if made.error is None and any(turn.response_text or turn.tool_calls() for turn in made.turns)
    ]
    if not cases:
        return StarterCases(agent, path, error=failure or "it answered nothing")
    path.parent.mkdir(parents=True, exist_ok=True)
    return StarterCases(agent, path, EvalFile(path, settings.workspace).add(cases), failure)


def starter_file(agent: AgentSettings, settings: Settings) -> Path:
    """Return the path for the first cases: ``evals/`` next to the agent's folder, or in it if it is the workspace."""
    beside = agent.path if agent.path == settings.workspace else agent.path.parent
    return beside / "evals" / f"{agent.path.name}.evalset.json"
