"""The folder that a run writes to: checked and cleared before the run, cleaned of symbolic links after it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from agent_eval_action.baseline.accepted import ACCEPT
from agent_eval_action.baseline.file_store import FOLDER, keep_out_of_git
from agent_eval_action.cli import log
from agent_eval_action.config.models import Settings
from agent_eval_action.errors import ConfigError, Problem, writing
from agent_eval_action.folders import OutputFolder, relative
from agent_eval_action.git.repository import Repository
from agent_eval_action.reports.results_json import RESULTS

_SHOWN: Final = 10
_COMMITTED: Final = frozenset({".gitignore", ".gitkeep", ACCEPT.name})
REPORT_FILES: Final = {"junit": "junit.xml", "markdown": "comment.md", "html": "report.html"}


@contextlib.contextmanager
def output_folder(settings: Settings) -> Iterator[None]:
    """Prepare the folder of a run's files: remove older files at the start, and links left by agents at the end."""
    refuse_unsafe_folders(settings)
    ours, out = settings.workspace / FOLDER, settings.output_folder(settings.out)
    with writing(settings.out, "choose another folder with --out"):
        for name in (RESULTS, *REPORT_FILES.values()):
            out.remove(name)  # if this run dies, no old verdict may be left
        if out.path.is_relative_to(ours):
            keep_out_of_git(settings.output_folder(ours))
    try:
        yield
    finally:
        if out.trusted == settings.workspace:  # otherwise it is a folder outside the workspace
            _remove_links(out, settings)


def _remove_links(out: OutputFolder, settings: Settings) -> None:
    """Remove symbolic links that an agent may have left among the results: an upload of the folder follows them."""
    try:
        for name in list(out.links()):
            out.remove(name)
            log.warning(f"{relative(out.path / name, settings.workspace)} was a symbolic link and is removed")
    except OSError as error:
        log.warning(f"{settings.out} may hold symbolic links: {error.strerror or error}")


def refuse_unsafe_folders(settings: Settings) -> None:
    """Raise ConfigError if a folder that runs write to is reached through a link, or has files tracked by git.

    Tracked files come with the change, so they could forge cached judge answers, kept attempts and environments.
    Reads the repository: call it before agents run.
    """
    paths = {"out": settings.out, "cache_dir": settings.cache_dir, "resume": settings.resume}
    folders = {option: settings.output_folder(path) for option, path in paths.items() if path is not None}
    inside = {option: folder for option, folder in folders.items() if folder.trusted == settings.workspace}
    problems = [problem for option, folder in inside.items() for problem in _link_problems(option, folder)]
    problems = problems or _tracked_files(inside, settings)
    if problems:
        raise ConfigError("the folders that runs write to cannot be used", problems=tuple(problems))


def _link_problems(option: str, folder: OutputFolder) -> Iterator[Problem]:
    path = folder.path
    if ".git" in [part.lower() for part in path.relative_to(folder.trusted).parts]:
        yield Problem(path, f"lies in git's own folder, and {option} is written by runs", hint="name another")
        return
    links: list[Path] = []
    message = f"is a symbolic link, and {option} ({path.name}) is not written through links"
    if (link := folder.first_link()) is not None:
        links = [link]
    elif option == "out":
        message = "is a symbolic link among the results, which uploading them would follow"
        with writing(path, "choose another folder with --out"):
            links = [path / name for name in islice(folder.links(), _SHOWN)]
    for link in links:
        yield Problem(link, message, value=str(link.readlink()), hint="remove the link")


def _tracked_files(folders: Mapping[str, OutputFolder], settings: Settings) -> list[Problem]:
    workspace, repository = settings.workspace, Repository(settings.workspace, os.environ)
    if not folders or repository.root() is None:
        return []
    paths = {option: folder.path.relative_to(workspace) for option, folder in folders.items()}
    # list each folder's first component: a submodule above the folder is a single entry
    tops = sorted({path.parts[0] if path.parts else "." for path in paths.values()})
    listed = repository.run("ls-files", "-z", "--", *(f":(icase,literal){top}" for top in tops))
    if not listed.ok:
        message = f"git cannot say what is tracked: {listed.err}"
        return [Problem(workspace, message, hint="check the repository with `git ls-files`")]

    def overlaps(name: Path, folder: Path) -> bool:  # one contains the other; letter case is ignored
        pairs = zip(name.parts, folder.parts, strict=False)
        return all(part.casefold() == other.casefold() for part, other in pairs)

    tracked = {
        name: option
        for name in map(Path, listed.names)
        for option, path in paths.items()
        if name.name not in _COMMITTED and workspace / name != settings.baseline.path and overlaps(name, path)
    }
    return [
        Problem(
            workspace / name,
            f"is committed, and {option} ({paths[option]}) holds only what runs of this machine made",
            hint=f"git rm -r --cached {paths[option]}, and ignore it",
        )
        for name, option in list(tracked.items())[:_SHOWN]
    ]
