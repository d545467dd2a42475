"""The commands, their flags and their help. Each does its work in a file of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from agent_eval_action.config.options import OPTIONS, Option

app = typer.Typer(
    name="agent-eval",
    help="Decide whether a change makes an agent worse: run its eval sets, score them, compare with a baseline.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,  # drawing boxes costs more than everything else --help does
    context_settings={"help_option_names": ["-h", "--help"]},
)
baseline_app = typer.Typer(help="What main has scored: make, show, list.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(baseline_app, name="baseline")

GATE_OPTIONS = (
    "config",
    "out",
    "fail_on",
    "on_weakened",
    "new_cases",
    "threshold_on",
    "confidence",
    "min_effect",
    "max_drop",
    "max_rise",
    "gate_criteria",
    "gate_sets",
)

SIMULATE_OPTIONS = ("config", "baseline", "confidence", "min_effect", "max_drop", "gate_criteria", "max_extra_runs")

POST_OPTIONS = ("comment", "comment_detail", "comment_key", "ca_bundle")

Command = Callable[..., None]
ConfigFile = Annotated[str | None, typer.Option(metavar="FILE", help="The configuration file.")]
OutputFile = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write here, not to stdout.")]
EvalSets = Annotated[
    list[str] | None,
    typer.Argument(metavar="EVALSET[:case,…]", help="Eval files to run, some of their cases after a colon; none: all."),
]


def with_options(*, only: Sequence[str] = ()) -> Callable[[Command], Command]:
    """Add the options of the table that have a flag (or ``only`` these) as keywords; values arrive as text."""
    chosen = [option for option in OPTIONS if option.info.has_flag and (not only or option.name in only)]

    def decorate(command: Command) -> Command:
        def wrapped(**given: Any) -> None:
            values = {option.name: given.pop(option.name) for option in chosen}
            # a switch turns its option off; the other flags' values are text already
            texts = {name: "false" if value is True else value for name, value in values.items()}
            command(flags={name: text for name, text in texts.items() if text not in (None, [], ())}, **given)

        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "flags"]
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [*(p.replace(kind=keyword) for p in own), *(_parameter(option) for option in chosen)]
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        wrapped.__doc__ = command.__doc__
        wrapped.__name__ = command.__name__
        return wrapped

    return decorate


def _parameter(option: Option) -> inspect.Parameter:
    if option.info.switch:
        text, metavar = f"Turn off {option.key}. {option.help}", None
    else:
        default = f" [default: {option.shown.replace('`', '')}]" if option.shown else ""
        text, metavar = option.help + default, option.metavar
    info = typer.Option(option.flag, help=text, metavar=metavar, show_default=False)
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
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Decide whether a change makes an agent worse."""


@app.command()
@with_options()
def run(flags: dict[str, Any], evalsets: EvalSets = None) -> None:
    """Run eval sets against the agent, compare with the baseline, write reports, decide."""
    from agent_eval_action.cli.run import run_command

    raise typer.Exit(run_command(evalsets or [], flags))


@app.command()
def validate(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="PATH", help="Files or folders; none: all.")] = None,
    config: ConfigFile = None,
) -> None:
    """Check configuration, criteria and eval files without running anything."""
    from agent_eval_action.cli.validate import validate_command

    raise typer.Exit(validate_command(paths or [], config))


@app.command()
@with_options(only=GATE_OPTIONS)
def compare(
    flags: dict[str, Any],
    base: Annotated[Path, typer.Argument(metavar="BASE", help="A baseline, results, or google-adk's result files.")],
    head: Annotated[Path, typer.Argument(metavar="HEAD", help="The same of the change: a file, folder or pattern.")],
) -> None:
    """Compare and decide without running anything."""
    from agent_eval_action.cli.compare import compare_command

    raise typer.Exit(compare_command(base, head, flags))


@app.command()
@with_options(only=SIMULATE_OPTIONS)
def simulate(
    flags: dict[str, Any],
    runs: Annotated[int, typer.Option("--runs", metavar="N", help="Simulated runs of each change.")] = 500,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="The same seed gives the same numbers.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON to stdout.")] = False,
) -> None:
    """Show what the rules do on your own history: how often they block, what they catch, at what cost."""
    from agent_eval_action.cli.simulate import simulate_command

    raise typer.Exit(simulate_command(flags, runs, seed, as_json=as_json))


@app.command()
def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="results.json, or the folder it is in.")],
    to: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help="html, markdown, summary, junit or annotations.")
    ] = "markdown",
    output: OutputFile = None,
) -> None:
    """Render a report from results alone."""
    from agent_eval_action.cli.report import report_command

    raise typer.Exit(report_command(results, to, output))


@app.command()
@with_options(only=POST_OPTIONS)
def post(
    flags: dict[str, Any],
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="results.json, a folder with it, or its zip.")],
) -> None:
    """On workflow_run: comment with the results of an earlier run, of a fork for example. Trusts none of them."""
    from agent_eval_action.cli.post import post_command

    raise typer.Exit(post_command(results, flags))


@app.command()
def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A list of scenarios, or an eval file of any schema.")],
    session_file: Annotated[
        Path | None,
        typer.Option("--session-file", metavar="FILE", help="Application, user and state that every case begins with."),
    ] = None,
    output: OutputFile = None,
) -> None:
    """Make an eval set of a list of scenarios, or of an eval file in an older schema."""
    from agent_eval_action.cli.convert import convert_command

    raise typer.Exit(convert_command(file, session_file, output))


@app.command()
def accept(  # noqa: PLR0917 - typer makes an option of each
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why the change is intended.")],
    cases: Annotated[list[str] | None, typer.Argument(metavar="CASE", help="Ids of cases.")] = None,
    worse: Annotated[
        bool, typer.Option("--worse", help="Accept everything that got worse in the last run; name no case beside it.")
    ] = False,
    results: Annotated[
        Path | None,
        typer.Option("--from", metavar="RESULTS", help="With --worse: results.json of another run, or its folder."),
    ] = None,
    criterion: Annotated[
        list[str] | None, typer.Option("--criterion", metavar="NAME", help="Only these criteria; none: all of them.")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Only of this agent.")] = None,
    eval_set: Annotated[str | None, typer.Option("--eval-set", metavar="NAME", help="Only of this eval set.")] = None,
    config: ConfigFile = None,
) -> None:
    """Accept an intended change in .agent-eval/accept.yaml: commit it with the change."""
    from agent_eval_action.cli.accept import Scope, accept_command

    chosen = Scope(tuple(cases or ()), tuple(criterion or ()), agent, eval_set)
    raise typer.Exit(accept_command(chosen, reason, results if worse else None, config, worse=worse))


@baseline_app.command("update")
@with_options()
def baseline_update(
    flags: dict[str, Any],
    evalsets: EvalSets = None,
    results: Annotated[
        Path | None, typer.Option("--from", metavar="RESULTS", help="Take a finished run instead of making one.")
    ] = None,
) -> None:
    """Run the suite (5 repeats unless told) and store what it scored as the baseline."""
    from agent_eval_action.cli.baseline import update_command

    raise typer.Exit(update_command(evalsets or [], flags, results))


@baseline_app.command("show")
def baseline_show(
    path: Annotated[Path | None, typer.Argument(metavar="FILE", help="The baseline; none: the configured one.")] = None,
    config: ConfigFile = None,
) -> None:
    """Print the stored baseline."""
    from agent_eval_action.cli.baseline import show_command

    raise typer.Exit(show_command(path, config))


@baseline_app.command("history")
def baseline_history(
    config: ConfigFile = None,
) -> None:
    """List the runs of main that this checkout is compared with."""
    from agent_eval_action.cli.baseline import history_command

    raise typer.Exit(history_command(config))
