"""The judges' prompts: one file each, whose first line is ``version: N``; change the words, change the number."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_FENCES = "fences"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a judge is told to do. ``version`` changes whenever the words do, those every prompt shares included."""

    text: str
    version: str


@cache
def load(name: str) -> Prompt:
    """The prompt of ``<name>.md``, followed by the rule about fences that holds for all of them."""
    own, shared = _read(name), _read(_FENCES)
    return Prompt(f"{own.text}\n\n{shared.text}", f"{name}-{own.version}.{shared.version}")


def _read(name: str) -> Prompt:
    first, _, text = files(__package__).joinpath(f"{name}.md").read_text("utf-8").partition("\n")
    label, _, version = first.partition(":")
    if label != "version" or not version.strip().isdigit():
        raise ValueError(f"{name}.md does not begin with its version")
    return Prompt(text.strip(), version.strip())
