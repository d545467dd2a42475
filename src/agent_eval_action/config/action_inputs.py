"""Inputs of the actions that are no options: the credentials of models, and what only GitHub knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent_eval_action.config.options import BY_NAME


@dataclass(frozen=True, slots=True)
class ActionInput:
    """An input that is no option. ``variable`` is the environment variable it stands for, "" for none."""

    name: str
    help: str
    default: str = ""
    variable: str = ""

    @property
    def variables(self) -> tuple[str, str]:
        """The runner's spelling, whose dashes stay, and the one a shell can set."""
        return f"INPUT_{self.name.upper()}", f"INPUT_{self.name.upper().replace('-', '_')}"


def _credential(variable: str, sentence: str) -> ActionInput:
    return ActionInput(variable.lower().replace("_", "-"), f"{sentence} Default: `{variable}`.", variable=variable)


CREDENTIALS: Final = (
    _credential("GOOGLE_API_KEY", "Key of the Gemini API, for agents and judges."),
    _credential("GOOGLE_GENAI_USE_VERTEXAI", "true: Gemini is asked on Vertex AI."),
    _credential("GOOGLE_CLOUD_PROJECT", "Project that Vertex AI is asked in."),
    _credential("GOOGLE_CLOUD_LOCATION", "Location that Vertex AI is asked in."),
    _credential("OPENAI_API_KEY", "Key of OpenAI, or of a server that speaks its wire, for agents and judges."),
    _credential("ANTHROPIC_API_KEY", "Key of Anthropic, for agents."),
)
"""Each means its variable, which ``env:`` of the step sets as well; where both are given, the input counts."""

CONTEXT: Final = (
    ActionInput(
        "matrix",
        "The job's leg of its matrix: each leg has a comment of its own. Leave it alone.",
        "${{ toJSON(matrix) }}",
    ),
)

HOST: Final = (
    ActionInput(
        "tool-python",
        "The Python, 3.11 or newer, that agent-eval itself runs on: a version or a path; "
        "never the agent's. Default: uv finds one, or downloads 3.13.",
    ),
    ActionInput(
        "tool-index",
        "Package index that agent-eval itself is installed from, where PyPI is not reached. "
        "Default: `UV_DEFAULT_INDEX`, else PyPI.",
    ),
)
"""Of host/action.yml alone: its tool is installed when the step runs."""

NO_OPTIONS: Final = (*CREDENTIALS, *CONTEXT)


def given_credentials(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that inputs stand for, with what the inputs say. The empty string is an input nobody gave.

    The job's token is given always, so there a variable that somebody set counts first.
    """
    found: dict[str, str] = {}
    for one in CREDENTIALS:
        texts = [text for name in one.variables if (text := environ.get(name, "").strip())]
        if texts:
            found[one.variable] = texts[0]
    token = next((text for name in BY_NAME["github_token"].variables if (text := environ.get(name, "").strip())), "")
    if token and not environ.get("GITHUB_TOKEN"):
        found["GITHUB_TOKEN"] = token
    return found
