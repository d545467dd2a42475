"""What an option is: its spellings, kind, default and sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from agent_eval_action.config.secrets import REDACT
from agent_eval_action.config.simulator import SIMULATOR
from agent_eval_action.config.types import (
    BOOLEAN,
    BRANCH,
    CRITERIA,
    DURATION,
    ENV,
    EVALS,
    MAX_DROP,
    MAX_RISE,
    PATH,
    PATHS,
    PRICES,
    PYTHON,
    RATES,
    RULES,
    SETS,
    TEXT,
    TEXTS,
    THRESHOLD_ON,
    USD,
    Kind,
    choice,
    fraction,
    integer,
)

Scope = Literal["run", "agent", "command"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    ``name`` is the key of ``flags`` in ``settings.resolve``. ``key`` is its dotted place in
    agent-eval.yaml, None when it has none. ``scope``: *run* is said once; *agent* is said for every
    agent (also in an entry of ``agents``); *command* is about one invocation and not for a file.
    ``default`` is what Settings has without it, ``shown`` how the docs write that.
    ``switch`` is a flag without a value that turns the option off. ``action_default`` is the expression
    that fills the input on GitHub where nobody gives it; a value there would win over the file.
    ``strict`` is what the option is under ``strict: true`` where nobody gives it; None: as without.
    """

    name: str
    kind: Kind
    help: str
    key: str | None
    default: Any = None
    shown: str = ""
    scope: Scope = "run"
    metavar: str = "TEXT"
    repeatable: bool = False
    has_flag: bool = True
    switch: str = ""
    action_default: str = ""
    strict: Any = None

    @property
    def flag(self) -> str | None:
        """As typed at the command; None where a positional argument says it."""
        if self.switch:
            return self.switch
        return "--" + self.name.replace("_", "-") if self.has_flag else None

    @property
    def input(self) -> str:
        """The input of the Action."""
        return self.name.replace("_", "-")

    @property
    def variables(self) -> tuple[str, str]:
        """The runner's spelling, whose dashes stay, and the one a shell can set."""
        return f"INPUT_{self.input.upper()}", f"INPUT_{self.name.upper()}"


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


LLM_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "llm_concurrency",
        integer(1, 10_000),
        "Calls at once of one model that judges; fewer are made while it answers that it is asked too much.",
        "llm.concurrency",
        default=96,
        shown="`96`",
        metavar="N",
    ),
    Option(
        "llm_requests_per_minute",
        RATES,
        "Most requests a minute to a model that judges: one number, or one per model.",
        "llm.requests_per_minute",
        default={},
        shown="what the server lets through",
        metavar="N|MODEL=N",
        repeatable=True,
    ),
    Option(
        "llm_tokens_per_minute",
        RATES,
        "Most tokens a minute of a model that judges: one number, or one per model.",
        "llm.tokens_per_minute",
        default={},
        shown="what the server lets through",
        metavar="N|MODEL=N",
        repeatable=True,
    ),
    Option(
        "llm_timeout_s",
        DURATION,
        "Longest time of one try of a call to a model that judges.",
        "llm.timeout_s",
        default=60.0,
        shown="`60`",
        metavar="DURATION",
    ),
    Option(
        "llm_retry_deadline",
        DURATION,
        "Longest time that tries of one call and the waits between them may take together.",
        "llm.retry_deadline",
        default=120.0,
        shown="`2m`",
        metavar="DURATION",
    ),
    Option(
        "llm_cache",
        BOOLEAN,
        "Whether judges' answers are kept and used again; runs that write history never use kept ones.",
        "llm.cache",
        default=True,
        shown="`true`",
        switch="--no-cache",
    ),
    Option(
        "llm_prices",
        PRICES,
        "Prices of models in USD per million tokens (input, output, cached_input), over those that are known.",
        "llm.prices",
        default={},
        shown="list prices of common models",
        has_flag=False,
    ),
    Option(
        "llm_openai_base_url",
        TEXT,
        "Address of the server that judges named openai/MODEL are asked at.",
        "llm.openai_base_url",
        shown="`OPENAI_BASE_URL`, else OpenAI",
        metavar="URL",
    ),
)


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


OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "config",
        PATH,
        "The configuration file.",
        None,
        shown="`agent-eval.yaml`, `agent-eval.yml` or `.github/agent-eval.yaml`",
        scope="command",
        metavar="FILE",
    ),
    Option(
        "agent",
        TEXTS,
        "The agent's folder; with a file that lists agents, the folder or name of the ones to run.",
        "agent",
        shown="agent folders are discovered",
        metavar="DIR",
        repeatable=True,
    ),
    *AGENT_TABLE,
    Option(
        "baseline",
        PATH,
        "The stored baseline this run is compared with.",
        "baseline.path",
        default=".agent-eval/baseline.json",
        shown="`.agent-eval/baseline.json`",
        metavar="FILE",
    ),
    Option(
        "baseline_store",
        choice("auto", "file", "branch", "rerun"),
        "Where scores of main are kept: a committed file, or a branch of the remote with a record per run of main; "
        "rerun keeps none: the base commit's agent runs everything beside the change's.",
        "baseline.store",
        default="auto",
        metavar="auto|file|branch|rerun",
        shown="`auto`: the file where there is one, else on GitHub the branch",
    ),
    Option(
        "baseline_branch",
        BRANCH,
        "The branch that holds the records.",
        "baseline.branch",
        default="agent-eval-data",
        shown="`agent-eval-data`",
        metavar="NAME",
    ),
    Option(
        "baseline_remote",
        BRANCH,
        "The remote that branch is on.",
        "baseline.remote",
        default="origin",
        shown="`origin`",
        metavar="NAME",
    ),
    Option(
        "baseline_runs",
        integer(1, 1000),
        "How many of the newest comparable runs of main are pooled.",
        "baseline.runs",
        default=20,
        shown="`20`",
        metavar="N",
    ),
    Option(
        "baseline_max_age",
        integer(1, 3650),
        "Age in days from which a baseline is warned about.",
        "baseline.max_age",
        default=30,
        shown="`30`",
        metavar="DAYS",
    ),
    Option(
        "out",
        PATH,
        "Folder of results, transcripts and reports.",
        "out",
        default=".agent-eval/out",
        shown="`.agent-eval/out`",
        metavar="DIR",
    ),
    Option(
        "cache_dir",
        PATH,
        "Folder of what can be made again: environments built for agents, judges' answers.",
        "cache_dir",
        default=".agent-eval/cache",
        shown="`.agent-eval/cache`",
        metavar="DIR",
    ),
    Option(
        "repeats",
        integer(1, 1000),
        "How often every case is run.",
        "repeats",
        default=1,
        shown="`1`; `baseline update`: `5`",
        metavar="N",
    ),
    Option(
        "concurrency",
        integer(1, 10_000),
        "Sessions at once.",
        "concurrency",
        default=32,
        shown="`32`",
        metavar="N",
    ),
    Option(
        "max_time",
        DURATION,
        "Longest time of the whole run; what is not measured by then makes it inconclusive.",
        "max_time",
        default=2700.0,
        shown="`45m`",
        metavar="DURATION",
    ),
    Option(
        "stall_timeout",
        DURATION,
        "Longest time in which nothing is answered, by agents or by judges, before the run ends as inconclusive.",
        "stall_timeout",
        shown="`5m`, or a minute more than the longest `timeout_s`",
        metavar="DURATION",
    ),
    Option(
        "retries",
        integer(0, 100),
        "How often an attempt that failed for infrastructure reasons is made again.",
        "retries",
        default=2,
        shown="`2`",
        metavar="N",
    ),
    Option(
        "reruns",
        choice("auto", "on", "off"),
        "Whether what got worse is run again until it is decided; auto: unless repeats are fixed at more than one.",
        "reruns",
        default="auto",
        metavar="auto|on|off",
        shown="`auto`",
    ),
    Option(
        "max_extra_runs",
        integer(0, 1_000_000),
        "Most attempts beyond the first pass, those of the base commit's agent included.",
        "max_extra_runs",
        shown="ten passes over the suite, and 100",
        metavar="N",
    ),
    Option(
        "max_calls",
        integer(1, 1_000_000_000),
        "Most model calls of a run, agents and judges together; at the limit what is undecided is inconclusive.",
        "max_calls",
        shown="no limit",
        metavar="N",
    ),
    Option(
        "max_tokens",
        integer(1, 1_000_000_000_000),
        "Most tokens of a run, as the models report them; at the limit nothing more is run.",
        "max_tokens",
        shown="no limit",
        metavar="N",
    ),
    Option(
        "max_cost",
        USD,
        "Most USD of a run, agents and judges together, by the price table; at the limit nothing more is run.",
        "max_cost",
        shown="no limit",
        metavar="USD",
    ),
    *LLM_OPTIONS,
    *GITHUB_OPTIONS,
    Option(
        "case",
        TEXTS,
        "Only cases whose id matches this shell-style pattern.",
        None,
        default=(),
        shown="every case",
        scope="command",
        metavar="PATTERN",
        repeatable=True,
    ),
    Option(
        "resume",
        PATH,
        "Folder of an unfinished run: what it has is kept, only what is missing is run.",
        None,
        scope="command",
        metavar="DIR",
    ),
    Option(
        "allow_pull_request_target",
        BOOLEAN,
        "Run on pull_request_target, or after a fork's run on workflow_run: whatever is checked out then runs with "
        "this repository's secrets.",
        None,
        default=False,
        scope="command",
        metavar="true|false",
        shown="`false`",
    ),
    Option(
        "strict",
        BOOLEAN,
        "Preset: fail_on: inconclusive, on_weakened: fail, new_cases: block and withheld: fail, where nothing else is "
        "said of them.",
        "strict",
        default=False,
        metavar="true|false",
        shown="`false`",
    ),
    Option(
        "fail_on",
        choice("fail", "inconclusive", "never"),
        "Which outcomes make the step red: fail alone, inconclusive as well, or never any (report only: the verdict is "
        "shown).",
        "gate.fail_on",
        default="inconclusive",
        metavar="fail|inconclusive|never",
        shown="`inconclusive`",
        strict="inconclusive",
    ),
    Option(
        "on_weakened",
        choice("warn", "fail"),
        "What becomes of a change that loosens what the agent is measured by: it is shown first, or it is blocked.",
        "gate.on_weakened",
        default="warn",
        metavar="warn|fail",
        shown="`warn`",
        strict="fail",
    ),
    Option(
        "accept",
        choice("honour", "ignore"),
        "Whether an intended change in .agent-eval/accept.yaml counts: its pairs' history starts anew, or it does not.",
        "gate.accept",
        default="honour",
        metavar="honour|ignore",
        shown="`honour`",
    ),
    Option(
        "new_cases",
        choice("advise", "block"),
        "What becomes of a case that main does not have yet and that misses a threshold: it is shown, or it blocks.",
        "gate.new_cases",
        default="advise",
        metavar="advise|block",
        shown="`advise`",
        strict="block",
    ),
    Option(
        "withheld",
        choice("pass", "neutral", "fail"),
        "What a pull request is of which only a part could be measured, because GitHub gave it no secrets: passed by "
        "what was measured, inconclusive with a green step, or failed.",
        "gate.withheld",
        default="neutral",
        metavar="pass|neutral|fail",
        shown="`neutral`",
        strict="fail",
    ),
    Option(
        "agents_see_evals",
        BOOLEAN,
        "Whether the copy of the checkout that the agent runs in has the eval files, criteria files and recordings of "
        "the run in it.",
        "gate.agents_see_evals",
        default=False,
        metavar="true|false",
        shown="`false`",
    ),
    Option(
        "threshold_on",
        THRESHOLD_ON,
        "What must meet a threshold: a case confirmed worse than main, or without history (regression), "
        "every case (ADK's rule), the suite's mean, or nothing.",
        "gate.threshold_on",
        default="regression",
        metavar="regression|case|suite|off",
        shown="`regression`",
    ),
    Option(
        "confidence",
        fraction(0.5, 0.9999),
        "How sure the gate must be over everything it tests: 0.99 lets one harmless change in a hundred be blocked.",
        "gate.confidence",
        default=0.99,
        shown="`0.99`",
        metavar="NUMBER",
    ),
    Option(
        "min_effect",
        fraction(0, 1),
        "The least drop of a case's mean that blocks, however sure it is.",
        "gate.min_effect",
        default=0.1,
        shown="`0.1`",
        metavar="NUMBER",
    ),
    Option(
        "max_drop",
        MAX_DROP,
        "How far the suite mean of a higher-is-better criterion may drop below its baseline.",
        "gate.max_drop",
        default=0.05,
        shown="`0.05`",
        metavar="NUMBER",
    ),
    Option(
        "max_rise",
        MAX_RISE,
        "How far the suite mean of a lower-is-better criterion may rise, as a part of its baseline.",
        "gate.max_rise",
        shown="no limit",
        metavar="NUMBER",
    ),
    Option(
        "gate_criteria",
        RULES,
        "Rules of single criteria: mode (blocking, advisory, off), threshold_on, max_drop, max_rise.",
        "gate.criteria",
        default={},
        shown="the rules above",
        metavar="CRITERION.RULE=VALUE",
        repeatable=True,
    ),
    Option(
        "gate_sets",
        SETS,
        "Modes of single eval sets: blocking, advisory (shown, never blocking) or off (not judged).",
        "gate.sets",
        default={},
        shown="every set blocks",
        metavar="SET=MODE",
        repeatable=True,
    ),
)

BY_NAME: Final = {option.name: option for option in OPTIONS}
AGENT_OPTIONS: Final = tuple(option for option in OPTIONS if option.scope == "agent")
