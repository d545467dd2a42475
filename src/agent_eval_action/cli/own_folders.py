"""Refuses folders of ours that the workspace leads elsewhere, or that bring content along: links, tracked files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from agent_eval_action.baseline.accept import ACCEPT
from agent_eval_action.config.settings import Settings
from agent_eval_action.errors import ConfigError, OutputError, Problem
from agent_eval_action.folders import OutputFolder
from agent_eval_action.git import Repository

_SHOWN: Final = 10
_COMMITTED: Final = frozenset({".gitignore", ".gitkeep", ACCEPT.name})


def refuse_unsafe_folders(settings: Settings, environ: Mapping[str, str]) -> None:
    """Raise ConfigError when what a run writes or keeps would go through a link, or is tracked by git.

    A link leads to files that are not ours. What is tracked came with the change: kept answers of judges, kept
    attempts and kept environments are measurements only where a run made them. Reads the repository, so it is
    called before agents run.
    """
    named = {"out": settings.out, "cache_dir": settings.cache_dir, "resume": settings.resume}
    ours = [_Ours(option, settings.output_folder(path)) for option, path in named.items() if path is not None]
    inside = [one for one in ours if one.folder.trusted == settings.workspace]
    problems = [problem for ours_inside in inside for problem in _misplaced(ours_inside)]
    problems = problems or _tracked(inside, settings, environ)
    if problems:
        raise ConfigError("the folders that runs write to cannot be used", problems=tuple(problems))


@dataclass(frozen=True, slots=True)
class _Ours:
    """A folder and the option that names it."""

    option: str
    folder: OutputFolder


def _misplaced(ours: _Ours) -> Iterator[Problem]:
    folder, place = ours.folder, ours.folder.path
    if ".git" in [part.lower() for part in place.relative_to(folder.trusted).parts]:
        yield Problem(place, f"lies in git's own folder, and {ours.option} is written by runs", hint="name another")
        return
    link = folder.first_link()
    if link is not None:
        message = f"is a symbolic link, and {ours.option} ({place.name}) is not written through links"
        yield Problem(link, message, value=_target(link), hint="remove the link")
    elif ours.option == "out":
        try:
            links = [place / name for name in islice(folder.links(), _SHOWN)]
        except OSError as error:
            said = f"{place} cannot be written: {error.strerror or error}"
            raise OutputError(said, hint="choose another folder with --out") from error
        for link in links:
            message = "is a symbolic link among the results, which uploading them would follow"
            yield Problem(link, message, value=_target(link), hint="remove the link")


def _target(link: Path) -> str | None:
    try:
        return str(link.readlink())
    except OSError:
        return None


def _tracked(ours: list[_Ours], settings: Settings, environ: Mapping[str, str]) -> list[Problem]:
    workspace, repository = settings.workspace, Repository(settings.workspace, environ)
    if not ours or repository.root() is None:
        return []
    places = {one.option: one.folder.path.relative_to(workspace) for one in ours}
    # of a folder's first component: a submodule above it is an entry of its own
    tops = sorted({place.parts[0] if place.parts else "." for place in places.values()})
    done = repository.git("ls-files", "-z", "--", *(f":(icase,literal){top}" for top in tops))
    if not done.ok:
        message = f"git cannot say what is tracked: {done.err}"
        return [Problem(workspace, message, hint="check the repository with `git ls-files`")]
    names = [Path(name.decode("utf-8", "surrogateescape")) for name in done.out.split(b"\0") if name]
    found = {
        name: option
        for name in names
        for option, place in places.items()
        if _is_ours(workspace / name, place, settings)
    }
    return [
        Problem(
            workspace / name,
            f"is committed, and {option} ({places[option]}) holds only what runs of this machine made",
            hint=f"git rm -r --cached {places[option]}, and ignore it",
        )
        for name, option in list(found.items())[:_SHOWN]
    ]


def _is_ours(path: Path, place: Path, settings: Settings) -> bool:
    """Whether a tracked path lies in the folder, or the folder in it; names differ in no more than their case."""
    if path.name in _COMMITTED or path == settings.baseline:
        return False
    own = _folded(path.relative_to(settings.workspace))
    folder = _folded(place)
    return own[: len(folder)] == folder or folder[: len(own)] == own


def _folded(path: Path) -> tuple[str, ...]:
    return tuple(part.casefold() for part in path.parts)
