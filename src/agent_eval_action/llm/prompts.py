"""Prompt files: ``<name>.md`` in a package, whose first line is ``version: N``; other words get another number."""

from __future__ import annotations

from importlib.resources import files


def read_prompt(package: str, name: str) -> tuple[str, str]:
    """Return the version and the text of a prompt. Raises ValueError where the first line is no version."""
    first, _, text = files(package).joinpath(f"{name}.md").read_text("utf-8").partition("\n")
    label, _, version = first.partition(":")
    if label != "version" or not version.strip().isdigit():
        raise ValueError(f"{name}.md does not begin with its version")
    return version.strip(), text.strip()
