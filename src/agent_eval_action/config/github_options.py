"""The options about what a run leaves on GitHub: its comment, and what is taken out of everything that is stored."""

from __future__ import annotations

from typing import Final

from agent_eval_action.config.option import Option
from agent_eval_action.config.redact import REDACT
from agent_eval_action.config.values import PATH, TEXT, choice

GITHUB_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "comment",
        choice("update", "recreate", "changes", "off"),
        "The comment on the pull request: one that is edited in place (update), a new one each run (recreate), "
        "one that is edited when the outcome differs from what it says (changes), or none.",
        "comment",
        default="update",
        metavar="update|recreate|changes|off",
        shown="`update`",
    ),
    Option(
        "comment_detail",
        choice("full", "scores"),
        "What the comment shows: everything, or names and numbers without a word of agents, judges and users.",
        "comment_detail",
        default="full",
        metavar="full|scores",
        shown="`full`",
    ),
    Option(
        "comment_key",
        TEXT,
        "Name of this run's comment: runs of one key replace each other's.",
        "comment_key",
        shown="workflow, job, configuration file and leg of the matrix",
        metavar="NAME",
    ),
    Option(
        "redact",
        REDACT,
        "Regular expressions (RE2's): what fits one is stored in no result, transcript, log or report. "
        "An input has one a line.",
        "redact",
        default=(),
        shown="secrets that are known alone",
        metavar="PATTERN",
        repeatable=True,
    ),
    Option(
        "github_token",
        TEXT,
        "Token that comments; the job needs `permissions: pull-requests: write`.",
        None,
        shown="the job's own",
        scope="command",
        has_flag=False,
        action_default="${{ github.token }}",
    ),
    Option(
        "ca_bundle",
        PATH,
        "PEM file of certificates that are trusted too, for a GitHub or a proxy of your own.",
        None,
        shown="the system's certificates",
        scope="command",
        metavar="FILE",
    ),
)
