"""What a finished run leaves with GitHub, in an order in which nothing that fails takes away what matters more.

Results and reports are on disk before this begins. Nothing here changes a verdict: what fails is said as a warning.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent_eval_action.ci import log
from agent_eval_action.ci.github.outputs import append_summary, write_outputs
from agent_eval_action.results.evalset import Annotation

Say = Callable[[str], None]
"""Takes a line."""


@dataclass(frozen=True, slots=True)
class StepReports:
    """What is left, each made when it is its turn.

    ``summary`` takes a budget in bytes of UTF-8. ``show`` prints the verdict, on GitHub or not. ``publish`` posts
    the comment and returns what went wrong in one sentence, "" when nothing did; None: no comment is wanted.
    """

    outputs: Callable[[], Mapping[str, str]]
    summary: Callable[[int], str]
    show: Callable[[], str | None]
    annotations: Callable[[], Sequence[Annotation]]
    publish: Callable[[], str] | None = None


def on_github(environ: Mapping[str, str]) -> bool:
    """Whether this is a step of a workflow. Elsewhere nothing of this package acts."""
    return environ.get("GITHUB_ACTIONS") == "true"


def publish_step(leaving: StepReports, environ: Mapping[str, str], warn: Say, say: Say) -> None:
    """Outputs, summary, the verdict on the log, annotations, comment. Never raises.

    ``warn`` takes a sentence, ``say`` a command. The log comes before the comment, which may have to wait for GitHub.
    """
    shown = ("the verdict could not be shown", leaving.show)
    steps: list[tuple[str, Callable[[], str | None]]] = [
        ("the step's outputs could not be written", lambda: write_outputs(leaving.outputs(), environ)),
        ("the step's summary could not be written", lambda: append_summary(leaving.summary, environ)),
        shown,
        ("the annotations could not be made", lambda: _annotate(leaving.annotations(), say)),
        ("the comment could not be posted", leaving.publish or (lambda: "")),
    ]
    for failed, step in steps if on_github(environ) else [shown]:
        try:
            said = step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the verdict stands and the next step is tried
            said = f"{failed}: {error or type(error).__name__}"
        if said:
            with contextlib.suppress(OSError):  # nobody reads the log any more
                warn(said)


def _annotate(annotations: Sequence[Annotation], say: Say) -> str:
    for one in annotations:
        say(log.annotation(one))
    return ""
