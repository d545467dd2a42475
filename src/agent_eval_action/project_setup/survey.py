"""Surveys a project: agents, eval files, packages, credentials and CI. Reads files and runs none of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dotenv import dotenv_values

from agent_eval_action.agents.variable_advice import names_in_code
from agent_eval_action.config.discovery import Discovery, no_agent_found
from agent_eval_action.config.job_variables import is_job_variable
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.config.walk import texts_below
from agent_eval_action.environments.lock import find_lock
from agent_eval_action.environments.variables import agent_environ
from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.folders import folders_upwards, relative
from agent_eval_action.git.repository import Repository

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
_VERTEX: Final = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")
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
    agents = found.agents
    if not agents:
        raise no_agent_found(settings)
    workspace, repository = settings.workspace, Repository(settings.workspace, environ)
    packages, lacking = dict[str, str](), dict[str, str]()
    for agent in agents:
        _find_packages(agent, workspace, packages, lacking)
    dotenv = {agent.name: _dotenv(agent.path, workspace) for agent in agents}
    given = {name: value for values in dotenv.values() for name, value in values.items()}
    code = b"\n".join(text for agent in agents for _, text in _texts(agent.path))
    vertex = any((given.get(name) or "").lower() in {"1", "true"} for name in _VERTEX) or bool(
        _VERTEX_IN_CODE.search(code)
    )
    models = {_KEYS[name] for found in _MODEL.findall(code) for part in found if (name := part.decode()) in _KEYS}
    if {"GEMINI_API_KEY", "GOOGLE_API_KEY"} & given.keys():
        models.add("GOOGLE_API_KEY")
    workflows = {path.name: text for path, text in _texts(workspace / ".github" / "workflows", (".yml", ".yaml"))}
    known = {name.decode() for text in workflows.values() for name in _USED_SECRET.findall(text)}
    gates = [name for name, text in workflows.items() if b"/agent-eval-action" in text and b"pull_request" in text]
    models |= {*_KEYS.values()} & given.keys()
    models |= {"OPENAI_API_KEY" if name.startswith("openai/") else "GOOGLE_API_KEY" for name in judges}
    return ProjectSurvey(
        agents=agents,
        eval_files=tuple(sorted({each.path for each in found.sets})),
        packages=packages,
        lacking=lacking,
        keys=tuple(sorted(models - ({"GOOGLE_API_KEY"} if vertex else set()))),
        variables={agent.name: _variables_to_configure(agent, dotenv[agent.name]) for agent in agents},
        known=frozenset(known),
        gates=tuple(gates),
        vertex=vertex,
        cis=_detect_cis(workspace, repository),
        branch=_main_branch(repository),
    )


def _find_packages(agent: AgentSettings, workspace: Path, packages: dict[str, str], lacking: dict[str, str]) -> None:
    if agent.driver not in {"adk", "python"}:  # others start what they need themselves
        return
    try:
        lock = find_lock(agent.path, workspace)
    except AgentEnvironmentError as error:
        lacking[agent.name] = str(error)
        return
    if lock is None:
        lacking[agent.name] = "nothing names its packages: CI needs uv.lock, pyproject.toml or requirements.txt"
    else:
        packages[agent.name] = relative(lock.path, workspace)


def _dotenv(folder: Path, workspace: Path) -> Mapping[str, str | None]:
    """Return the variables of the nearest .env in or above an agent's folder."""
    files = (place / ".env" for place in folders_upwards(folder, workspace))
    file = next((file for file in files if file.is_file()), None)
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
