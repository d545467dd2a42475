"""The settings. These models define all options: flags, inputs, JSON Schema and docs are generated from them."""

# No `from __future__ import annotations`: pydantic would compile every annotation again at each start of the command.

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field, SecretStr

from agent_eval_action.config.option_info import Looser, option
from agent_eval_action.config.types import (
    CHOICE,
    FILE,
    FOLDER,
    PYTHON,
    SECRET_TEXT,
    Boolean,
    CasePatterns,
    Command,
    CriteriaSource,
    Dollars,
    Drop,
    Duration,
    Evals,
    Files,
    FunctionName,
    GitName,
    Headers,
    Name,
    Origin,
    Paths,
    Prices,
    Rates,
    Redactions,
    Rise,
    ShardNumber,
    Text,
    Texts,
    Url,
    UserSimulator,
    ValueType,
    Variables,
    fraction,
    mapping_of_text,
    whole_number,
)
from agent_eval_action.diagnostics.validation import invalid
from agent_eval_action.folders import OutputFolder
from agent_eval_action.results.base import Frozen, StoreKind, TracksFields

if TYPE_CHECKING:  # importing the types of results would slow down `--help`
    from agent_eval_action.results.run_result import Goal

Mode = Annotated[Literal["blocking", "advisory", "off"], CHOICE, Looser(("blocking", "advisory", "off"))]
ThresholdOn = Annotated[
    Literal["regression", "case", "suite", "off"], CHOICE, Looser(("case", "regression", "suite", "off"))
]
FailOn = Annotated[Literal["fail", "inconclusive", "never"], CHOICE, Looser(("inconclusive", "fail", "never"))]
OnWeakened = Annotated[Literal["warn", "fail"], CHOICE, Looser(("fail", "warn"))]
Acceptance = Annotated[Literal["honour", "ignore"], CHOICE, Looser(("ignore", "honour"))]
NewCases = Annotated[Literal["advise", "block"], CHOICE, Looser(("block", "advise"))]
Withheld = Annotated[Literal["pass", "neutral", "fail"], CHOICE, Looser(("fail", "neutral", "pass"))]

# Defaults that other packages also use.
MAX_DROP: Final = 0.05
CONFIDENCE: Final = 0.99
MIN_EFFECT: Final = 0.1
TURN_SECONDS: Final = 120.0
JUDGE_CALLS: Final = 96
TRY_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 120.0
MOST_EXTRA_RUNS_PER_CASE: Final = 10  # at most: how many a suspect gets stands in gate/assess.py
MOST_EXTRA_RUNS: Final = 100  # for the whole run, in addition to those for each case

ADVISORY: Final = frozenset({"invocation_duration_v1"})
"""Seconds vary with the machine and the model's load, so they are advisory unless configured to block."""


class CriterionPolicy(TracksFields):
    """The rules of one criterion.

    ``mode``: *advisory* findings are shown and never block; *off* is not judged at all.
    ``threshold_on``: with *regression* a case below its threshold blocks when it is confirmed worse than
    main, and without comparable history always; with *case* always (ADK's rule); or only the *suite*'s
    mean counts, or neither. ``max_drop``: allowed drop of the suite mean on the criterion's own scale;
    ``max_rise``: allowed rise of a lower-is-better suite mean as a fraction of the baseline (0.1 = a tenth
    more). None = no limit. Only a statistically significant change can exceed either.
    """

    mode: Mode = "blocking"
    threshold_on: ThresholdOn = "regression"
    max_drop: Annotated[Drop, Looser()] = MAX_DROP
    max_rise: Annotated[Rise, Looser()] = None


def _some_rules(value: Any, _: Origin) -> Any:
    if not value or not isinstance(value, Mapping | CriterionPolicy):
        raise invalid(f"must have rules: {', '.join(CriterionPolicy.model_fields)}")
    return value


def _criteria_rules(value: Any, origin: Origin) -> Any:
    """Rules by criterion; in text ``tokens.max_rise=10%`` per line. Missing rules are inherited later."""
    rules: dict[str, dict[str, str]] = {}
    if not origin.text:
        return value
    example = "token_usage_v1.max_rise=10%"
    for path, setting in mapping_of_text(value, origin, example).items():
        criterion, _, rule = path.rpartition(".")
        if not criterion:
            raise invalid(f"must be like {example}")
        rules.setdefault(criterion, {})[rule] = setting
    return rules


_RULES: Final = ValueType("", _some_rules)
Rules = Annotated[
    dict[str, Annotated[CriterionPolicy, _RULES]],
    ValueType("mapping", _criteria_rules, metavar="CRITERION.RULE=VALUE"),
]
Sets = Annotated[
    dict[str, Mode],
    ValueType("mapping", lambda value, origin: mapping_of_text(value, origin, "smoke=advisory"), metavar="SET=MODE"),
]


class Policy(Frozen):
    """The section ``gate``: rules for all criteria, and complete rules for criteria with their own."""

    on_weakened: OnWeakened = option(
        "warn",
        "When a change loosens its own checks: warn, or fail the step.",
        strict="fail",
    )
    accept: Acceptance = option(
        "honour",
        "Whether intended changes in .agent-eval/accept.yaml count: their history starts anew (honour), "
        "or they change nothing (ignore).",
    )
    new_cases: NewCases = option(
        "advise",
        "When a case that main does not have yet misses a threshold: show it, or block.",
        strict="block",
    )
    withheld: Withheld = option(
        "neutral",
        "Verdict of a pull request that was measured only in part because GitHub gave it no secrets: "
        "pass by that part, inconclusive with a green step, or fail.",
        strict="fail",
    )
    agents_see_evals: Annotated[Boolean, Looser((False, True))] = option(
        False,
        "Leave the eval files, criteria files and recordings in the agent's copy of the checkout.",
    )
    threshold_on: ThresholdOn = option(
        "regression",
        "What must meet a threshold: a case confirmed worse than main, or without history (regression), every"
        " case (ADK's rule), the suite's mean, or nothing.",
    )
    confidence: Annotated[float, fraction(0.5, 0.9999), Looser()] = option(
        CONFIDENCE,
        "How sure the gate must be over all its tests: at 0.99 it blocks at most one harmless change in a hundred.",
        common=True,
    )
    min_effect: Annotated[float, fraction(0, 1), Looser()] = option(
        MIN_EFFECT, "The smallest drop of a case's mean that blocks."
    )
    max_drop: Annotated[Drop, Looser()] = option(
        MAX_DROP, "How far the suite mean of a higher-is-better criterion may drop below its baseline.", common=True
    )
    max_rise: Annotated[Rise, Looser()] = option(
        None, "How far the suite mean of a lower-is-better criterion may rise, as a part of its baseline.", "no limit"
    )
    criteria: Rules = option(
        {},
        "Rules of single criteria: mode (blocking, advisory, off), threshold_on, max_drop, max_rise.",
        "the rules above",
        name="gate_criteria",
        repeatable=True,
    )
    sets: Sets = option(
        {},
        "Modes of single eval sets: blocking, advisory (shown, never blocking) or off (not judged).",
        "every set blocks",
        name="gate_sets",
        repeatable=True,
    )

    def for_criterion(self, name: str, goal: "Goal") -> CriterionPolicy:
        """The rules of a criterion; the limit for the other direction is None."""
        own = self.criteria.get(name) or self.inherited(name)
        return own.model_copy(update={"max_drop" if goal == "minimize" else "max_rise": None})

    def inherited(self, name: str) -> CriterionPolicy:
        """The rules of a criterion before its entry in ``gate.criteria`` changes them."""
        return CriterionPolicy(
            mode="advisory" if name in ADVISORY else "blocking",
            threshold_on=self.threshold_on,
            max_drop=self.max_drop,
            max_rise=self.max_rise,
        )


_answer_option = partial(option, describes_agent=True, decides_answers=True)
"""An option that decides what answers."""
_driver_option = partial(_answer_option, has_flag=False)
"""An option of some drivers only, which can be set only in the file."""

_SERVER: Final = (("url", "command"), "url: ADDRESS of a server that runs, or command: what starts one", ("headers",))
DRIVER_OPTIONS: Final[Mapping[str, tuple[tuple[str, ...], str, tuple[str, ...]]]] = {
    "adk": ((), "", ()),
    "recorded": (("recording",), "recording: FOLDER of a finished run", ()),
    "adk_server": _SERVER,
    "a2a": _SERVER,
    "openai": (*_SERVER[:2], ("headers", "model")),
    "command": (("command",), "command: the program that answers, and its arguments", ()),
    "python": (("function",), "function: MODULE:FUNCTION", ()),
}
"""For each built-in driver: options of which it needs exactly one, a hint, and further options it takes."""


class AgentDefaults(Frozen):
    """The options of agents that set none themselves.

    ``env`` maps a variable to its value, or to None to pass it through. ``paths`` None: not known, so every change may
    affect the agent.
    """

    criteria: CriteriaSource | None = option(
        None,
        "What is scored: a file like ADK's test_config.json or a mapping of criteria; wins over files beside "
        "eval files.",
        "the `test_config.json` beside each eval file, else ADK's defaults",
        common=True,
    )
    user_simulator: UserSimulator | None = option(
        None,
        "Who plays the user of conversation scenarios: a file or a mapping like ADK's user_simulator_config; "
        "wins over criteria files.",
        "`user_simulator_config` of the criteria file, else `gemini-2.5-flash`, at most 20 turns",
    )
    driver: Name = _answer_option(
        "adk",
        f"What answers: {', '.join(DRIVER_OPTIONS)}, or a driver from an installed package.",
        "{}, with a recording `recorded`",
        metavar="NAME",
    )
    recording: Annotated[Path | None, FOLDER] = _answer_option(
        None, "Folder of a finished run whose transcripts are scored again."
    )
    url: Url | None = _driver_option(None, "Address of the server that answers.")
    command: Command | None = _driver_option(
        None, "The command that starts the program or server that answers; `{port}` in it is a free port, `$PORT` too."
    )
    function: FunctionName | None = _driver_option(None, "The function that answers, as `module:function`.")
    model: Text | None = _driver_option(None, "The model's name in requests to an OpenAI-compatible server.")
    headers: Headers = option(
        {},
        "HTTP headers of requests to the server; `${NAME}` in a value is a variable that the agent sees.",
        has_flag=False,
        describes_agent=True,
    )
    python: Annotated[Path | None, PYTHON] = option(
        None,
        "The Python interpreter, or its virtual environment, that the agent runs in.",
        "found or built",
        describes_agent=True,
    )
    env: Variables = _answer_option(
        {},
        "Environment variables that the agent sees: names to pass through, or names with values.",
        "model credentials and the basics only",
        repeatable=True,
    )
    install_env: Variables = option(
        {},
        "Environment variables that only the build of the agent's environment sees: credentials of "
        "private package indexes and git hosts. Names, or names with values.",
        "index settings, proxies and certificates only",
        repeatable=True,
        describes_agent=True,
    )
    initial_session_file: Annotated[Path | None, FILE] = option(
        None,
        "Initial session (app_name, user_id, state) for eval files of the older list form.",
        "`x.session.json` beside `x.test.json`",
    )
    workers: Annotated[int | None, whole_number(1, 1024)] = option(
        None, "Worker processes of an agent.", "two, and more while all are busy, up to one per CPU core"
    )
    timeout_s: Duration = option(
        TURN_SECONDS, "Longest time of one turn; a turn that takes longer is an error of its case.", of="base"
    )
    paths: Paths | None = option(
        None,
        "What else the agent depends on, beside its folder, eval files and lock: paths or globs. A pull "
        "request that touches none of it does not run the agent.",
        "not known: every change runs every agent",
        has_flag=False,
    )


class AgentModule(Frozen):
    """An agent imported by its module's name, as by google-adk's AgentEvaluator.

    ``sub_agent``: the name of the sub-agent that answers, "" for the agent itself. ``search_path``: folders to search
    for modules first.
    """

    name: str
    sub_agent: str = ""
    search_path: tuple[Path, ...] = ()
    cwd: Path


class AgentSettings(AgentDefaults):
    """An agent: its folder, its name in all results, and its configured eval files.

    ``module``: the module to import it from; None: import the folder like ``adk eval``. No option sets it.
    """

    path: Path
    name: str
    evals: Evals = ()
    module: AgentModule | None = None


class AgentIdentity(Frozen):
    """The fields of an entry of ``agents`` besides the options of an agent."""

    name: Name | None = option(None, "The agent's name in every result; by default its folder's.", describes_agent=True)
    path: Text | None = _answer_option(None, "The agent's folder.")


class BaselineSettings(Frozen):
    """The section ``baseline``; a string instead is short for its ``path``."""

    path: Annotated[Path, FILE] = option(
        Path(".agent-eval/baseline.json"),
        "The stored baseline this run is compared with.",
        name="baseline",
        may_loosen=True,
    )
    store: Annotated[Literal["auto", StoreKind], CHOICE] = option(
        "auto",
        "Where scores of main are kept: a committed file, or a branch of the remote with a record per run of "
        "main; rerun keeps none: the base commit's agent runs everything beside the change's.",
        "{}: the file where there is one, else on GitHub the branch",
        may_loosen=True,
    )
    branch: GitName = option("agent-eval-data", "The branch that holds the records.", may_loosen=True)
    remote: GitName = option("origin", "The remote that branch is on.", may_loosen=True)
    runs: Annotated[int, whole_number(1, 1000)] = option(
        20, "How many of the newest comparable runs of main are pooled."
    )
    max_age: Annotated[int, whole_number(1, 3650)] = option(
        30, "Warn when the baseline is older than this many days.", metavar="DAYS"
    )


class LlmOptions(Frozen):
    """The section ``llm``: calls of models that judge or simulate users."""

    concurrency: Annotated[int, whole_number(1, 10000)] = option(
        96, "Parallel calls per judge model; lowered automatically on 429."
    )
    requests_per_minute: Rates = option(
        {},
        "Most requests a minute to a judge model: one number, or one per model.",
        "what the server lets through",
        repeatable=True,
    )
    tokens_per_minute: Rates = option(
        {},
        "Most tokens a minute of a judge model: one number, or one per model.",
        "what the server lets through",
        repeatable=True,
    )
    timeout_s: Duration = option(TRY_SECONDS, "Longest time of one try of a call to a judge model.")
    retry_deadline: Duration = option(
        RETRY_SECONDS, "Longest time of all tries of one call, with the waits between them."
    )
    cache: Boolean = option(
        True,
        "Keep judges' answers and use them again; runs that write history never use them.",
        switch="--no-cache",
    )
    prices: Prices = option(
        {},
        "Prices of models in USD per million tokens (input, output, cached_input); they win over the list prices.",
        "list prices of common models",
        has_flag=False,
        may_loosen=True,
    )
    openai_base_url: Text | None = option(
        None,
        "Address of the server for judge models named openai/MODEL.",
        "`OPENAI_BASE_URL`, else OpenAI",
        metavar="URL",
        may_loosen=True,
    )


class Settings(Frozen):
    """All settings of a run. Paths are absolute, times are in seconds.

    ``agents`` is empty if none is configured; ``discovery`` then finds them and gives each ``agent_defaults``.
    ``only_agents``: names that a flag or an input requested. ``evals``: the run's eval files, () to discover them.
    ``config``: the file that was read, or None. ``start``: where discovery searches, the base folder of the
    configuration file, else the current folder.
    """

    workspace: Path
    start: Path
    config: Annotated[Path | None, FILE] = option(
        None,
        "The configuration file.",
        "`agent-eval.yaml`, `agent-eval.yml` or `.github/agent-eval.yaml`",
        "command",
        repeats_run=True,
        topic="What to run",
    )
    only_agents: Texts = option(
        (),
        "The agent's folder; where agent-eval.yaml lists agents, the folders or names of those to run.",
        "agent folders are discovered",
        name="agent",
        key="agent",
        metavar="DIR",
        repeatable=True,
        of="change",
        repeats_run=True,
        topic="What to run",
        common=True,
    )
    agents: tuple[AgentSettings, ...] = ()
    evals: Evals = option(
        (),
        "Eval files to run: paths or globs (`**` for any depth).",
        "`*.evalset.json` and `*.test.json` are discovered",
        "agent",
        has_flag=False,
    )
    agent_defaults: AgentDefaults = Field(default_factory=AgentDefaults)
    baseline: BaselineSettings = Field(default_factory=BaselineSettings)
    out: Annotated[Path, FOLDER] = option(
        Path(".agent-eval/out"),
        "Folder of results, transcripts and reports.",
        of="change",
        topic="Reports and CI",
    )
    cache_dir: Annotated[Path, FOLDER] = option(
        Path(".agent-eval/cache"),
        "Folder of the cache: environments built for agents, judges' answers.",
        may_loosen=True,
        topic="How it runs",
    )
    repeats: Annotated[int, whole_number(1, 1000), Looser(when="lower")] = option(
        1, "Runs of every case.", "{}; `baseline update`: `5`", topic="What to run", common=True
    )
    concurrency: Annotated[int, whole_number(1, 10000)] = option(64, "Sessions at once.", topic="How it runs")
    max_time: Duration = option(
        2700.0,
        "Longest time of the whole run; a run that is not complete by then is inconclusive.",
        topic="Limits",
        common=True,
    )
    stall_timeout: Duration | None = option(
        None,
        "End the run as inconclusive when no agent and no judge answers for this long.",
        "`5m`, or a minute more than the longest `timeout_s`",
        topic="Limits",
    )
    retries: Annotated[int, whole_number(0, 100)] = option(
        2, "Retries of an attempt that failed for infrastructure reasons.", topic="How it runs"
    )
    reruns: Annotated[Literal["auto", "on", "off"], CHOICE] = option(
        "auto",
        "Run cases that got worse again until the verdict is clear; auto: unless repeats is more than one.",
        may_loosen=True,
        topic="How it runs",
    )
    max_extra_runs: Annotated[int | None, whole_number(0, 1000000)] = option(
        None,
        "Most attempts beyond the first pass, including those of the base commit's agent.",
        f"{MOST_EXTRA_RUNS_PER_CASE} for each case, and {MOST_EXTRA_RUNS} more",
        topic="Limits",
    )
    max_calls: Annotated[int | None, whole_number(1, 1000000000)] = option(
        None,
        "Most model calls of a run, agents and judges together; at the limit the run ends as inconclusive.",
        "no limit",
        topic="Limits",
    )
    max_tokens: Annotated[int | None, whole_number(1, 1000000000000)] = option(
        None,
        "Most tokens of a run, as the models report them; at the limit nothing more is run.",
        "no limit",
        topic="Limits",
    )
    max_cost: Dollars | None = option(
        None,
        "Most USD of a run, agents and judges together, by the price table; at the limit nothing more is run.",
        "no limit",
        topic="Limits",
        common=True,
    )
    llm: LlmOptions = Field(default_factory=LlmOptions)
    comment: Annotated[Literal["update", "recreate", "changes", "off"], CHOICE] = option(
        "update",
        "The comment on the pull request: one that every run edits (update), a new one each run "
        "(recreate), one that is edited only when the outcome changes (changes), or none (off).",
        of="change",
        topic="Reports and CI",
    )
    comment_detail: Annotated[Literal["full", "scores"], CHOICE] = option(
        "full",
        "What the comment shows: everything, or names and numbers without any text of agents, judges and users.",
        of="change",
        topic="Reports and CI",
    )
    comment_key: Text | None = option(
        None,
        "Key of this run's comment: runs with the same key share one comment.",
        "workflow, job, configuration file and leg of the matrix",
        metavar="NAME",
        of="change",
        topic="Reports and CI",
    )
    report_url: Text | None = option(
        None,
        "Address of the published report.html. The comment links to it, and to each cause's case in it.",
        "none: the comment links to the run",
        metavar="URL",
        of="change",
    )
    redact: Redactions = option(
        (),
        "Regular expressions (RE2): no result, transcript, log or report keeps a match. As an input, one a line.",
        "secrets that are known alone",
        repeatable=True,
        topic="Reports and CI",
    )
    github_token: Annotated[SecretStr | None, SECRET_TEXT] = option(
        None,
        "Token that comments; the job needs `permissions: pull-requests: write`.",
        "the job's own",
        "command",
        has_flag=False,
        action_default="${{ github.token }}",
    )
    ca_bundle: Annotated[Path | None, FILE] = option(
        None,
        "PEM file of additional trusted certificates, for your own GitHub server or proxy.",
        "the system's certificates",
        "command",
        topic="Reports and CI",
    )
    case: CasePatterns = option(
        (),
        "Only cases whose id matches this shell-style pattern.",
        "every case",
        "command",
        metavar="PATTERN",
        repeatable=True,
        repeats_run=True,
        topic="What to run",
        common=True,
    )
    resume: Annotated[Path | None, FOLDER] = option(
        None,
        "Folder of an unfinished run: keep its attempts and run only what is missing.",
        "",
        "command",
        topic="What to run",
    )
    shard: ShardNumber | None = option(
        None,
        "Measure this part of the suite and decide nothing: shard 3/8 is the third of eight. `merge` decides.",
        "",
        "command",
        repeats_run=True,
        topic="What to run",
    )
    wave: Annotated[Path | None, FILE] = option(
        None,
        "With shard: make the further attempts of this file, which `agent-eval next-wave` wrote.",
        "",
        "command",
        topic="What to run",
    )
    merge: Files = option(
        (),
        "Folders or files with the results of shards: join them and decide, instead of running the suite.",
        "",
        "command",
        has_flag=False,
    )
    allow_pull_request_target: Boolean = option(
        False,
        "Run on pull_request_target, or on workflow_run after a fork's run: the code that is checked out "
        "then runs with this repository's secrets.",
        scope="command",
        topic="Reports and CI",
    )
    strict: Boolean = option(
        False,
        "Preset: fail_on: inconclusive, on_weakened: fail, new_cases: block and withheld: fail, unless set otherwise.",
        topic="What blocks",
    )
    fail_on: FailOn = option(
        "inconclusive",
        "Which outcomes make the step red: fail alone, inconclusive as well, or none (report only).",
        key="gate.fail_on",
        strict="inconclusive",
        topic="What blocks",
        common=True,
    )
    policy: Policy = Field(default_factory=Policy)

    @property
    def adaptive(self) -> bool:
        """Whether doubtful cases are run again."""
        return self.reruns == "on" or (self.reruns == "auto" and self.repeats == 1)

    def output_folder(self, path: Path) -> OutputFolder:
        """A folder to write to; no links of the workspace are followed below it."""
        return OutputFolder.at(path, self.workspace)
