"""Refuse output folders that are links or hold content of the repository: a run writes to folders of its own alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from agent_eval_action.baseline.accepted import ACCEPT
from agent_eval_action.config.models import Settings
from agent_eval_action.errors import ConfigError, OutputError, Problem
from agent_eval_action.folders import OutputFolder
from agent_eval_action.git.repository import Repository

_SHOWN: Final = 10
_COMMITTED: Final = frozenset({".gitignore", ".gitkeep", ACCEPT.name})


def refuse_unsafe_folders(settings: Settings, environ: Mapping[str, str]) -> None:
    """Raise ConfigError when what a run writes or keeps would go through a link, or is tracked by git.

    A link leads to files that are not ours. What is tracked came with the change: kept answers of judges, kept
    attempts and kept environments are measurements only where a run made them. Reads the repository, so it is
    called before agents run.
    """
    paths = {"out": settings.out, "cache_dir": settings.cache_dir, "resume": settings.resume}
    folders = {option: settings.output_folder(path) for option, path in paths.items() if path is not None}
    inside = {option: folder for option, folder in folders.items() if folder.trusted == settings.workspace}
    problems = [problem for option, folder in inside.items() for problem in _links(option, folder)]
    problems = problems or _tracked_files(inside, settings, environ)
    if problems:
        raise ConfigError("the folders that runs write to cannot be used", problems=tuple(problems))


def _links(option: str, folder: OutputFolder) -> Iterator[Problem]:
    path = folder.path
    if ".git" in [part.lower() for part in path.relative_to(folder.trusted).parts]:
        yield Problem(path, f"lies in git's own folder, and {option} is written by runs", hint="name another")
        return
    link = folder.first_link()
    if link is not None:
        message = f"is a symbolic link, and {option} ({path.name}) is not written through links"
        yield Problem(link, message, value=_target(link), hint="remove the link")
    elif option == "out":
        try:
            links = [path / name for name in islice(folder.links(), _SHOWN)]
        except OSError as error:
            message = f"{path} cannot be written: {error.strerror or error}"
            raise OutputError(message, hint="choose another folder with --out") from error
        for link in links:
            message = "is a symbolic link among the results, which uploading them would follow"
            yield Problem(link, message, value=_target(link), hint="remove the link")


def _target(link: Path) -> str | None:
    try:
        return str(link.readlink())
    except OSError:
        return None


def _tracked_files(
    folders: Mapping[str, OutputFolder], settings: Settings, environ: Mapping[str, str]
) -> list[Problem]:
    workspace, repository = settings.workspace, Repository(settings.workspace, environ)
    if not folders or repository.root() is None:
        return []
    paths = {option: folder.path.relative_to(workspace) for option, folder in folders.items()}
    # of a folder's first component: a submodule above it is an entry of its own
    tops = sorted({path.parts[0] if path.parts else "." for path in paths.values()})
    listed = repository.run("ls-files", "-z", "--", *(f":(icase,literal){top}" for top in tops))
    if not listed.ok:
        message = f"git cannot say what is tracked: {listed.err}"
        return [Problem(workspace, message, hint="check the repository with `git ls-files`")]
    tracked = {
        name: option
        for name in map(Path, listed.names)
        for option, path in paths.items()
        if name.name not in _COMMITTED and workspace / name != settings.baseline.path and _overlap(name, path)
    }
    return [
        Problem(
            workspace / name,
            f"is committed, and {option} ({paths[option]}) holds only what runs of this machine made",
            hint=f"git rm -r --cached {paths[option]}, and ignore it",
        )
        for name, option in list(tracked.items())[:_SHOWN]
    ]


def _overlap(name: Path, folder: Path) -> bool:
    """Whether a tracked path lies in the folder, or the folder in it; the case of letters does not count."""
    pairs = zip(name.parts, folder.parts, strict=False)
    return all(one.casefold() == other.casefold() for one, other in pairs)
