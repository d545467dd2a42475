"""The options an agent has of its own, each in a row of the one table (``options``)."""

from __future__ import annotations

from typing import Any, Final

from agent_eval_action.config.composite import CRITERIA, ENV, EVALS, PATHS, PYTHON
from agent_eval_action.config.option import Option
from agent_eval_action.config.simulator import SIMULATOR
from agent_eval_action.config.values import DURATION, PATH, Kind, choice, integer


def _agent(name: str, kind: Kind, sentence: str, **rest: Any) -> Option:
    return Option(name, kind, sentence, name, scope="agent", **rest)


AGENT_TABLE: Final[tuple[Option, ...]] = (
    _agent(
        "evals",
        EVALS,
        "Eval files to run: paths or globs (`**` for any depth).",
        shown="`*.evalset.json` and `*.test.json` are discovered",
        has_flag=False,
    ),
    _agent(
        "criteria",
        CRITERIA,
        "What is scored: a file like ADK's test_config.json or a mapping of criteria; "
        "wins over files beside eval files.",
        shown="the `test_config.json` beside each eval file, else ADK's defaults",
        metavar="FILE",
    ),
    _agent(
        "user_simulator",
        SIMULATOR,
        "Who plays the user of conversation scenarios: a file or a mapping like ADK's user_simulator_config; "
        "wins over criteria files.",
        shown="`user_simulator_config` of the criteria file, else `gemini-2.5-flash`, at most 20 turns",
        metavar="FILE",
    ),
    _agent(
        "python",
        PYTHON,
        "The Python interpreter, or its virtual environment, that the agent runs in.",
        shown="found or built",
        metavar="INTERPRETER",
    ),
    _agent(
        "driver",
        choice("adk", "recorded"),
        "How answers are made: by ADK's Runner, or replayed from a recording.",
        default="adk",
        metavar="adk|recorded",
        shown="`adk`, with a recording `recorded`",
    ),
    _agent("recording", PATH, "Folder of a finished run whose transcripts are scored again.", metavar="DIR"),
    _agent(
        "env",
        ENV,
        "Environment variables the agent may see (names), or sees with these values.",
        default={},
        shown="model credentials and the basics only",
        metavar="NAME[=VALUE]",
        repeatable=True,
    ),
    _agent(
        "install_env",
        ENV,
        "Environment variables that building the agent's environment sees, and nothing after it: credentials of "
        "private package indexes and git hosts. Names, or names with values.",
        default={},
        shown="index settings, proxies and certificates only",
        metavar="NAME[=VALUE]",
        repeatable=True,
    ),
    _agent(
        "initial_session_file",
        PATH,
        "Session (app_name, user_id, state) that eval files of the older list form begin with.",
        shown="`x.session.json` beside `x.test.json`",
        metavar="FILE",
    ),
    _agent(
        "workers",
        integer(1, 1024),
        "Worker processes of an agent.",
        shown="two, and more while all are busy, up to one per CPU core",
        metavar="N",
    ),
    _agent(
        "timeout_s",
        DURATION,
        "Longest time of one turn; a turn that takes longer is an error of its case.",
        default=120.0,
        shown="`120`",
        metavar="DURATION",
    ),
    _agent(
        "paths",
        PATHS,
        "What the agent is made of beside its folder, its eval files and its lock: paths or globs. A pull request "
        "that touches none of it does not run the agent.",
        shown="not known: every change runs every agent",
        has_flag=False,
    ),
)
