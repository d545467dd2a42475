"""The commands, their flags and their help. Each command is implemented in its own module."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_eval_action.ci import detect
from agent_eval_action.cli.help import HelpfulCommand, HelpfulGroup
from agent_eval_action.errors import UsageError

if TYPE_CHECKING:
    from agent_eval_action.config.options import Option

app = typer.Typer(
    name="agent-eval",
    help="Decide whether a change makes an agent worse: run its eval sets, score them, compare with a baseline.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=HelpfulGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
)
baseline_app = typer.Typer(
    help="What main has scored: make, show, list.", no_args_is_help=True, rich_markup_mode=None, cls=HelpfulGroup
)

WHAT_TO_RUN = "What to run"  # a topic of the option table
Command = Callable[..., None]


def _option(flags: str, text: str, metavar: str | None = None, **more: Any) -> Any:
    return typer.Option(*flags.split(), help=text, metavar=metavar, **more)


def _argument(metavar: str, text: str, **more: Any) -> Any:
    return typer.Argument(metavar=metavar, help=text, **more)


def _case_names() -> list[str]:
    from agent_eval_action.cli.eval_files import case_names

    return case_names()


def _eval_files() -> list[str]:
    from agent_eval_action.cli.eval_files import eval_files

    return eval_files()


ConfigFile = Annotated[str | None, typer.Option(metavar="FILE", help="The configuration file.")]
OutputFile = Annotated[Path | None, _option("--output -o", "Write here, not to stdout.", "FILE")]
EvalSets = Annotated[
    list[str] | None,
    _argument(
        "EVALSET[:case,…]",
        "Eval files to run, some of their cases after a colon; none: all.",
        rich_help_panel=WHAT_TO_RUN,
        autocompletion=_eval_files,
    ),
]
Verbose = Annotated[bool, _option("--verbose -v", "Say also how the run is set up, and list every file.")]
Quiet = Annotated[bool, _option("--quiet -q", "Show the verdict and what blocks, nothing else.")]
AsJson = Annotated[bool, _option("--json", "Print JSON to stdout, errors too.")]
EvalSetOption = Annotated[
    list[str] | None, _option("--evalset", "The eval files that the shards were given.", "EVALSET[:case,…]")
]


class _WithOptions:
    """Adds options of the option table to a command: all that have a flag, or ``only`` these. Values are text."""

    def __init__(self, command: Command, only: Sequence[str]) -> None:
        functools.update_wrapper(self, command)
        self._command = command
        self._only = only

    def __call__(self, **given: Any) -> None:
        flags = {option.name: given.pop(option.name) for option in self._options()}
        # a switch turns its option off; other flags have text values
        texts = {name: "false" if value is True else value for name, value in flags.items()}
        self._command(flags={name: text for name, text in texts.items() if text not in (None, [], ())}, **given)

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        """The signature typer reads, twice."""
        own = inspect.signature(self._command, eval_str=True).parameters.values()
        named = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in own if parameter.name != "flags"]
        return inspect.Signature([*named, *map(_parameter, self._options())])

    def _options(self) -> list[Option]:
        # importing the table takes longer than the rest of --help, so only the called command imports it
        name = self._command.__name__.rstrip("_")
        if not {name.replace("_", "-"), *name.split("_")} & {*sys.argv, *_words_to_complete()}:
            return []
        from agent_eval_action.config.options import OPTIONS

        return [o for o in OPTIONS if o.info.has_flag and (not self._only or o.name in self._only)]


def _words_to_complete() -> list[str]:
    """The words of the command line being completed: typer uses one variable for bash, another for other shells."""
    return f"{os.environ.get('COMP_WORDS', '')} {os.environ.get('_TYPER_COMPLETE_ARGS', '')}".split()


def with_options(*only: str) -> Callable[[Command], Command]:
    """Add the options that have a flag, or ``only`` these; the command receives them as ``flags``."""
    return lambda command: _WithOptions(command, only)


def _command(
    panel: str, *examples: str, name: str | None = None, group: typer.Typer = app
) -> Callable[[Command], Command]:
    """Register a command in a ``panel`` of the group's help, with ``examples`` for its own help."""
    return group.command(name, cls=HelpfulCommand, rich_help_panel=panel or None, epilog="\n".join(examples))


def _parameter(option: Option) -> inspect.Parameter:
    if option.info.switch:
        text, metavar = f"Turn off {option.key}. {option.help}", None
    else:
        default = f" [default: {option.shown.replace('`', '')}]" if option.shown else ""
        text, metavar = option.help + default, option.metavar
    complete = _case_names if option.name == "case" else None
    info = typer.Option(option.flag, help=text, metavar=metavar, show_default=False, autocompletion=complete)
    kind: Any = list[str] | None if option.info.repeatable else bool | None if option.info.switch else str | None
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, info]
    )


def _version(*, value: bool) -> None:
    if value:
        from agent_eval_action import __version__

        typer.echo(f"agent-eval {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, _option("--version", "Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Decide whether a change makes an agent worse."""


@_command(
    "Set up",
    "agent-eval init  # asks at most three questions",
    "agent-eval init --yes --ci gitlab",
    "agent-eval init --force .github/workflows/agent-eval.yml  # this file alone",
)
def init(  # noqa: PLR0917 - typer makes an option of each
    named: Annotated[list[Path] | None, _argument("FILE", "Write only these of its files; none: all.")] = None,
    yes: Annotated[bool, _option("--yes -y", "Ask nothing; take what was found and the defaults.")] = False,
    force: Annotated[
        bool, _option("--force", "Replace files that differ; without it their difference is shown.")
    ] = False,
    ci: Annotated[
        str | None, _option("--ci", "github, gitlab, jenkins, azure or bitbucket; by default as found.", "NAME")
    ] = None,
    public: Annotated[
        bool | None, _option("--public/--private", "Whether forks send pull requests.", show_default=False)
    ] = None,
    capture: Annotated[
        bool | None,
        _option(
            "--capture/--no-capture",
            "Where no eval case is: ask the agent three messages and keep its answers as cases.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write the configuration, the workflow and the first cases for the agents of this project."""
    from agent_eval_action.cli.init import init_command

    raise typer.Exit(init_command(ci, named or (), yes=yes, force=force, public=public, capture=capture))


@_command(
    "Measure and decide",
    "agent-eval run  # every case",
    "agent-eval run evals/booking.evalset.json:refund,rebook  # these two",
    "agent-eval run --worse  # what got worse in the last run",
    "agent-eval run --agent agents/booking --max-cost 2.50",
)
@with_options()
def run(  # noqa: PLR0917 - typer makes an option of each
    flags: dict[str, Any],
    evalsets: EvalSets = None,
    worse: Annotated[
        bool, _option("--worse", "Only the cases that got worse in the last run.", rich_help_panel=WHAT_TO_RUN)
    ] = False,
    last_failed: Annotated[
        bool,
        _option("--last-failed", "Only the cases that were not green in the last run.", rich_help_panel=WHAT_TO_RUN),
    ] = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run eval sets against the agent, compare with the baseline, write reports, decide."""
    selectors = tuple(evalsets or ())
    if worse and last_failed:
        raise UsageError("--worse and --last-failed exclude each other", hint="--last-failed has the worse cases too")
    if worse or last_failed:
        from agent_eval_action.cli.log import print_line
        from agent_eval_action.cli.outputs import cases_of_last_run
        from agent_eval_action.cli.session import settings_for

        selectors, sentence = cases_of_last_run(settings_for(flags).settings, selectors, worse=worse)
        if not quiet:
            print_line(sentence)
    raise typer.Exit(_run(flags, selectors, verbose=verbose, quiet=quiet, as_json=as_json))


def _run(flags: dict[str, Any], selectors: Sequence[str], *, verbose: bool, quiet: bool, as_json: bool) -> int:
    from agent_eval_action.agents.adk import prestart
    from agent_eval_action.config.loader import resolve
    from agent_eval_action.processes.process import ForkServers

    resolved, job = resolve(flags=flags, environ=os.environ, cwd=Path.cwd()), detect(os.environ).job(os.environ)
    settings = resolved.settings
    with contextlib.closing(ForkServers()) as servers:
        if not job.event.is_change:  # packages that a change installs must not run before the gate's rules are read
            prestart(settings, os.environ, servers)
        from agent_eval_action.cli.session import checked, evaluated, output_folder, verbosity_of
        from agent_eval_action.run.shards import refuse_combinations

        verbosity = verbosity_of(verbose=verbose, quiet=quiet)
        refuse_combinations(checked(resolved).settings)

        def comment() -> str:
            from agent_eval_action.cli.comment import post_comment  # imports httpx

            return post_comment(result, settings, job)

        running = evaluated(resolved, selectors, verbosity=verbosity, flags=flags, fork_servers=servers)
        with output_folder(settings), running as result:
            # imported while the agents started
            from agent_eval_action.cli.outputs import finish, finish_shard, print_results

            code = finish_shard(result, settings) if settings.shard else finish(result, settings, comment, verbosity)
            if as_json:
                print_results(result)
            return code


@_command(
    "Measure and decide",
    "agent-eval watch  # run again what a saved file affects",
    "agent-eval watch evals/booking.evalset.json --agent agents/booking",
)
@with_options()
def watch(flags: dict[str, Any], evalsets: EvalSets = None) -> None:
    """Run again what each saved file affects: agent code, prompts, eval files. Ctrl-C ends."""
    from agent_eval_action.cli.watch import watch_command

    raise typer.Exit(watch_command(flags, evalsets or ()))


@_command("Shards", "agent-eval merge .agent-eval/shards")
@with_options()
def merge(  # noqa: PLR0917 - typer makes an option of each
    flags: dict[str, Any],
    results: Annotated[list[str], _argument("PATH", "Folders or files with the results of all shards.")],
    evalset: EvalSetOption = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Join the results of shards, re-run what is in doubt, compare, write reports, decide."""
    raise typer.Exit(_run({**flags, "merge": results}, evalset or (), verbose=verbose, quiet=quiet, as_json=as_json))


@_command("Shards", "agent-eval plan --target 5m  # as many as keep each within five minutes")
@with_options()
def plan(
    flags: dict[str, Any],
    evalsets: EvalSets = None,
    target: Annotated[
        str, _option("--target", "As many shards as keep each of them within this time.", "DURATION")
    ] = "5m",
    shards: Annotated[int | None, _option("--shards", "So many shards, however long they take.", "N")] = None,
) -> None:
    """Print the jobs of a matrix as JSON: as many shards as the suite needs by main's durations."""
    from agent_eval_action.cli.eval_files import plan_command

    plan_command(flags, evalsets or (), target, shards)


@_command("Shards", "agent-eval next-wave .agent-eval/shards")
@with_options()
def next_wave(
    flags: dict[str, Any],
    results: Annotated[list[str], _argument("PATH", "Folders or files with the results of all shards.")],
    evalset: EvalSetOption = None,
    target: Annotated[
        str, _option("--target", "What takes one job longer than this is a wave of jobs.", "DURATION")
    ] = "5m",
    output: Annotated[Path, _option("--output -o", "The attempts of each job, for `run --wave`.", "FILE")] = Path(
        ".agent-eval/wave.json"
    ),
) -> None:
    """Print the jobs of a matrix that re-run what is in doubt, as JSON; an empty list if merge can do it."""
    from agent_eval_action.cli.eval_files import next_wave_command

    next_wave_command({**flags, "merge": results}, evalset or (), target, output)


@_command("Eval files", "agent-eval list", "agent-eval list --json | jq .estimate", name="list")
@with_options("config", "agent", "case", "repeats")
def list_(
    flags: dict[str, Any],
    evalsets: EvalSets = None,
    as_json: AsJson = False,
) -> None:
    """Show agents, eval sets, cases, criteria with thresholds, and what a run is expected to take."""
    from agent_eval_action.cli.eval_files import list_command

    list_command(flags, evalsets or (), as_json=as_json)


@_command(
    "Eval files", "agent-eval validate  # everything a run would read", "agent-eval validate evals/booking.evalset.json"
)
def validate(
    paths: Annotated[list[Path] | None, _argument("PATH", "Files or folders; none: all.")] = None,
    config: ConfigFile = None,
    quiet: Annotated[bool, _option("--quiet -q", "Show problems, nothing else.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check configuration, criteria and eval files without running anything."""
    from agent_eval_action.cli.eval_files import validate_command

    raise typer.Exit(validate_command(paths or [], config, as_json=as_json, quiet=quiet))


@_command("Measure and decide", "agent-eval compare main/results.json .agent-eval/out/results.json")
@with_options(
    *("config", "out", "fail_on", "on_weakened", "new_cases", "threshold_on"),
    *("confidence", "min_effect", "max_drop", "max_rise", "gate_criteria", "gate_sets"),
)
def compare(  # noqa: PLR0917 - typer makes an option of each
    flags: dict[str, Any],
    base: Annotated[Path, _argument("BASE", "A baseline, results, or result files of google-adk or agents-cli.")],
    head: Annotated[Path, _argument("HEAD", "The same of the change: a file, folder or pattern.")],
    verbose: Annotated[bool, _option("--verbose -v", "List every file of --out.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compare and decide without running anything."""
    from agent_eval_action import api
    from agent_eval_action.cli import summary
    from agent_eval_action.cli.log import console
    from agent_eval_action.cli.outputs import print_results, report_input, results_file, write_requested_files
    from agent_eval_action.cli.session import exit_code, refuse_unsafe_folders, settings_for, verbosity_of
    from agent_eval_action.reports.verdict import rerun_commands

    settings, verbosity = settings_for(flags).settings, verbosity_of(verbose=verbose, quiet=quiet)
    if flags.get("out"):
        refuse_unsafe_folders(settings)
    report = report_input(api.compare(base, head, settings), results_file(head).parent)
    written = write_requested_files(report, settings) if flags.get("out") else {}
    again = "".join(rerun_commands(report))
    summary.show(console(), report, written, commands={"again": again}, local=False, verbosity=verbosity)
    if as_json:
        print_results(report.result)
    raise typer.Exit(exit_code(report.result.status, report.decision, settings.fail_on))


@_command(
    "Measure and decide",
    "agent-eval simulate  # with the rules of agent-eval.yaml",
    "agent-eval simulate --max-drop 0.1 --confidence 0.95",
)
@with_options("config", "baseline", "confidence", "min_effect", "max_drop", "gate_criteria", "max_extra_runs")
def simulate(
    flags: dict[str, Any],
    runs: Annotated[int, _option("--runs", "Simulated runs of each change.", "N")] = 500,
    seed: Annotated[int, _option("--seed", "The same seed gives the same numbers.", "N")] = 1,
    as_json: AsJson = False,
) -> None:
    """Simulate the gate on your own history: how often it blocks, what it catches, at what cost."""
    from agent_eval_action.cli.baseline import simulate_command

    simulate_command(flags, runs, seed, as_json=as_json)


@_command("Reports", "agent-eval report --to html -o report.html  # of the last run")
def report(
    results: Annotated[Path | None, _argument("RESULTS", "results.json, or its folder; none: of the last run.")] = None,
    to: Annotated[str, _option("--to", "html, markdown, summary, junit or annotations.", "FORMAT")] = "markdown",
    output: OutputFile = None,
) -> None:
    """Render a report from the results of a run."""
    from agent_eval_action.cli.outputs import report_input, results_file, write_data
    from agent_eval_action.diagnostics.reader import did_you_mean
    from agent_eval_action.reports import REPORTS, results_json

    render = REPORTS.get(to)
    if render is None:
        names = ", ".join(sorted(REPORTS))
        raise UsageError(f"there is no report {to!r}: choose from {names}", hint=did_you_mean(to, REPORTS))
    if results is None:
        from agent_eval_action.cli.session import settings_for

        results = Path(os.path.relpath(settings_for({}).settings.out))
    file = results_file(results)
    write_data(render(report_input(results_json.read(file), file.parent), None), output)


@_command("Reports", "agent-eval post agent-eval-results.zip")
@with_options("comment", "comment_detail", "comment_key", "report_url", "ca_bundle")
def post(
    flags: dict[str, Any],
    results: Annotated[Path, _argument("RESULTS", "results.json, a folder with it, or its zip.")],
) -> None:
    """Comment with the results of this run or, on workflow_run, of an earlier one. Trusts neither."""
    from agent_eval_action.cli.comment import post_command

    post_command(results, flags)


@_command("Eval files", "agent-eval convert scenarios.json -o evals/scenarios.evalset.json")
def convert(
    file: Annotated[Path, _argument("FILE", "A list of scenarios, or an eval file of any schema.")],
    session_file: Annotated[
        Path | None, _option("--session-file", "Application, user and state that every case begins with.", "FILE")
    ] = None,
    output: OutputFile = None,
) -> None:
    """Turn a list of scenarios, or an eval file in an older schema, into an eval set."""
    from agent_eval_action.cli.eval_files import convert_command

    convert_command(file, session_file, output)


@_command(
    "Eval files",
    "agent-eval capture  # talk to the agent, and keep the conversation as a case",
    "agent-eval capture --into evals/booking.evalset.json --agent agents/booking",
    "agent-eval capture --from session.json --name refund",
    "agent-eval capture --from .agent-eval/out --case refund  # of the last run",
)
@with_options("config", "agent", "python")
def capture(  # noqa: PLR0917 - typer makes an option of each
    flags: dict[str, Any],
    into: Annotated[
        Path | None, _option("--into", "The eval file that gets the case; made where there is none.", "FILE")
    ] = None,
    name: Annotated[str, _option("--name", "The case's id; none: made of its words.", "NAME")] = "",
    source: Annotated[
        Path | None,
        _option("--from", "A session of google-adk, a trace, or results.json; none: talk to the agent.", "FILE"),
    ] = None,
    cases: Annotated[list[str] | None, _option("--case", "With --from: the conversations meant in it.", "NAME")] = None,
    state: Annotated[str, _option("--state", "The session's state at the beginning, as an object.", "JSON")] = "",
    force: Annotated[bool, _option("--force", "Keep it also where a case has the same conversation.")] = False,
) -> None:
    """Save a conversation with the agent as an eval case: have one here, or take one from a file."""
    from agent_eval_action.cli.capture import capture_command

    chosen, called = cases or (), name.strip()
    code = capture_command(flags, into=into, name=called, source=source, cases=chosen, state=state, force=force)
    raise typer.Exit(code)


@_command("Measure and decide", "agent-eval explain refund")
def explain(  # noqa: PLR0917 - typer makes an option of each
    case: Annotated[str, _argument("CASE", "Id of a case.", autocompletion=_case_names)],
    agent: Annotated[str | None, _option("--agent", "Of this agent.", "NAME")] = None,
    eval_set: Annotated[str | None, _option("--eval-set", "Of this eval set.", "NAME")] = None,
    results: Annotated[
        Path | None, _option("--from", "results.json of another run than the last one.", "RESULTS")
    ] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Print everything known about a case: criteria, history, the last run, what would make it pass."""
    from agent_eval_action.cli.explain import explain_command

    explain_command(case, agent, eval_set, results, config, as_json=as_json)


@_command(
    "Eval files",
    "agent-eval update  # the differences of the last run, one key each",
    "agent-eval update --case refund",
    "agent-eval update --all --yes  # every case expects what the agent did",
)
def update(  # noqa: PLR0917 - typer makes an option of each
    cases: Annotated[
        list[str] | None,
        _option("--case", "Only these; none: all that were not green.", "NAME", autocompletion=_case_names),
    ] = None,
    every: Annotated[bool, _option("--all", "Also the cases that were green.")] = False,
    yes: Annotated[bool, _option("--yes", "Accept everything that is shown; nobody is asked.")] = False,
    results: Annotated[Path | None, _option("--from", "results.json of another run, or its folder.", "RESULTS")] = None,
    reason: Annotated[str, _option("--reason", "Why the change is intended, for accept.yaml.", "TEXT")] = "",
    config: ConfigFile = None,
) -> None:
    """Show what cases expect beside what the agent did in the last run, and save what you accept."""
    from agent_eval_action.cli.accept import update_command

    raise typer.Exit(update_command(cases or (), results, config, every=every, yes=yes, reason=reason.strip()))


@_command(
    "Baseline",
    'agent-eval accept --worse --reason "prices are rounded now"',
    'agent-eval accept refund rebook --criterion response_match_score --reason "…"',
    "agent-eval accept --quarantine refund --owner jo --until 2027-01-31 --reason …",
)
def accept(  # noqa: PLR0917 - typer makes an option of each
    reason: Annotated[str, _option("--reason", "Why the change is intended.", "TEXT")],
    cases: Annotated[list[str] | None, _argument("CASE", "Ids of cases.", autocompletion=_case_names)] = None,
    worse: Annotated[
        bool, _option("--worse", "Accept everything that got worse in the last run; name no case beside it.")
    ] = False,
    results: Annotated[
        Path | None, _option("--from", "With --worse: results.json of another run, or its folder.", "RESULTS")
    ] = None,
    criterion: Annotated[
        list[str] | None, _option("--criterion", "Only these criteria; none: all of them.", "NAME")
    ] = None,
    agent: Annotated[str | None, _option("--agent", "Only of this agent.", "NAME")] = None,
    eval_set: Annotated[str | None, _option("--eval-set", "Only of this eval set.", "NAME")] = None,
    quarantine: Annotated[
        bool, _option("--quarantine", "Set the cases aside: they run and are shown, and block nothing.")
    ] = False,
    owner: Annotated[
        str, _option("--owner", "With --quarantine: who looks after it.", "NAME", show_default=False)
    ] = "",
    until: Annotated[
        str, _option("--until", "With --quarantine: its last day.", "YYYY-MM-DD", show_default=False)
    ] = "",
    config: ConfigFile = None,
) -> None:
    """Accept an intended change, or quarantine a case, in .agent-eval/accept.yaml; commit it with the change."""
    from agent_eval_action.cli.accept import accept_named, accept_worse

    where = {"agent": [agent] if agent else [], "eval_set": [eval_set] if eval_set else []}
    named = {"case": cases or [], "criterion": criterion or [], **where}
    if not reason.strip():
        raise UsageError("an accepted change needs a reason", hint='--reason "why this is intended"')
    if quarantine != bool(owner.strip()) or quarantine != bool(until):
        raise UsageError("a quarantine needs --quarantine, --owner and --until", hint="--owner NAME --until YYYY-MM-DD")
    if quarantine and worse:
        raise UsageError("--worse accepts changes, it quarantines nothing", hint="name the cases to quarantine")
    if worse == any(named.values()):
        raise UsageError("name either cases, or --worse for everything that got worse in the last run")
    if worse:
        accept_worse(reason.strip(), results, config)
    else:
        accept_named(named, reason.strip(), config, {"owner": owner.strip(), "until": until} if quarantine else None)


@_command(
    "",
    "agent-eval baseline update  # run the suite five times and store it",
    "agent-eval baseline update --from .agent-eval/out  # store a finished run",
    name="update",
    group=baseline_app,
)
@with_options()
def baseline_update(
    flags: dict[str, Any],
    evalsets: EvalSets = None,
    results: Annotated[Path | None, _option("--from", "Take a finished run instead of making one.", "RESULTS")] = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Run the suite (5 repeats by default) and store its scores as the baseline."""
    from agent_eval_action.cli.baseline import update_command
    from agent_eval_action.cli.session import verbosity_of

    verbosity = verbosity_of(verbose=verbose, quiet=quiet)
    raise typer.Exit(update_command(evalsets or [], flags, results, verbosity))


@_command("", "agent-eval baseline show | grep refund", name="show", group=baseline_app)
def baseline_show(
    path: Annotated[Path | None, _argument("FILE", "The baseline; none: the configured one.")] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the stored baseline."""
    from agent_eval_action.cli.baseline import show_command

    show_command(path, config, as_json=as_json)


@_command("", "agent-eval baseline history", name="history", group=baseline_app)
def baseline_history(
    config: ConfigFile = None,
) -> None:
    """List main's runs that this checkout is compared with."""
    from agent_eval_action.cli.baseline import history_command

    history_command(config)


app.add_typer(baseline_app, name="baseline", rich_help_panel="Baseline")


def forget_other_commands(called: Sequence[str]) -> None:
    """Unregister all commands but the called one: typer would build all of them, which takes a tenth of a second."""
    names = {
        each.name or str(getattr(each.callback, "__name__", "")).replace("_", "-"): each
        for each in app.registered_commands
    }
    if found := [names[name] for name in called if name in names]:
        app.registered_commands, app.registered_groups = found, []
