"""Advice about variables that an agent needs and does not see, found in its code and in its errors."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from agent_eval_action.config.job_variables import is_job_variable
from agent_eval_action.config.walk import texts_below
from agent_eval_action.diagnostics.suggestions import shortlist
from agent_eval_action.environments.runtime import AgentRuntimeSpec
from agent_eval_action.environments.variables import agent_environ
from agent_eval_action.results.run_result import AttemptError, ErrorKind

_READ_VARIABLE: Final = re.compile(
    rb"(?:environ(?:\.(?:get|pop|setdefault))?|getenv)\s*[\[(]\s*[rub]?[\"']([A-Za-z_][A-Za-z0-9_]*)[\"']"
)
_FILES: Final = 5_000
_BYTES: Final = 1 << 20
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LISTED: Final = 5
_CREDENTIALS: Final = (
    (re.compile("anthropic|resolve authentication method", re.IGNORECASE), "set ANTHROPIC_API_KEY"),
    (re.compile("openai|client option must be set", re.IGNORECASE), "set OPENAI_API_KEY"),
    (
        re.compile(r"API_KEY_INVALID|API key not valid|PERMISSION_DENIED|ClientError: 40[13]\b", re.IGNORECASE),
        "check GOOGLE_API_KEY (or GEMINI_API_KEY): the key is not valid, or may not use this model",
    ),
    (
        re.compile("No API key was provided|Missing key inputs|default credentials|google|gemini", re.IGNORECASE),
        "set GOOGLE_API_KEY (or GEMINI_API_KEY), or GOOGLE_GENAI_USE_VERTEXAI=true with a project and location",
    ),
)


def names_in_code(folder: Path) -> frozenset[str]:
    """Return the variables that Python files below a folder read by name. Imports nothing."""
    texts = texts_below(folder, (".py",), max_entries=_FILES, size=_BYTES)
    return frozenset(name.decode() for _, text in texts for name in _READ_VARIABLE.findall(text))


def withheld_names(spec: AgentRuntimeSpec) -> set[str]:
    """Return variables that are set but not passed to the agent, except the CI job's, which can never be passed."""
    is_set = {name for name, value in spec.environ.items() if value and not is_job_variable(name)}
    return is_set - agent_environ(spec.environ, spec.env_allow).keys()


def advice_for(names: Collection[str]) -> str:
    """Return what to do about withheld variables that are needed; "" if there are none."""
    if not names:
        return ""
    ordered = sorted(names)
    verb, what = ("is", "it") if len(ordered) == 1 else ("are", "them")
    shown = shortlist(ordered, _LISTED)
    return f"{shown} {verb} set here but not passed to the agent: add {what} to `env:` of the agent"


def with_advice(error: AttemptError, spec: AgentRuntimeSpec) -> AttemptError:
    """Return the error with the variables to set or pass, if a missing one caused it."""
    words = withheld_names(spec).intersection(_WORD.findall(error.message))
    # a plain word of an error is hardly a variable: PWD, DEBUG, user
    advice = advice_for({word for word in words if "_" in word.strip("_") or f"KeyError: '{word}'" in error.message})
    if not advice and error.kind is ErrorKind.CREDENTIALS:
        advice = next((what for sign, what in _CREDENTIALS if sign.search(error.message)), "")
    if not advice or advice in error.message:
        return error
    return error.model_copy(update={"message": f"{error.message} — {advice}"})
