"""Help: every option under its topic, ``-h`` on one screen, examples that can be typed, 80 columns."""

from __future__ import annotations

import re
import shlex

import pytest

from agent_eval_action.config.option_info import TOPICS
from agent_eval_action.config.options import OPTIONS
from support.command import agent_eval

RUN = [option for option in OPTIONS if option.info.has_flag]
COMMANDS = [
    *("run", "validate", "compare", "simulate", "report", "post", "convert", "accept", "explain", "merge", "plan"),
    *("next-wave", "capture", "init", "list"),
    "update",
    "watch",
    *("baseline update", "baseline show", "baseline history"),
]


def shown(*words: str) -> str:
    done = agent_eval(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def sections(text: str) -> dict[str, str]:
    found = re.split(r"(?m)^(?=[A-Z][A-Za-z ]+$)", text)
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in found[1:]}


@pytest.mark.parametrize("command", ["", "baseline", *COMMANDS])
def test_no_line_is_wider_than_80_columns_and_no_word_is_broken(command: str) -> None:
    words = command.split()
    for flag in ("-h", "--help"):
        text = shown(*words, flag)
        assert text.startswith(f"Usage: {' '.join(['agent-eval', *words])} ")
        assert max(map(len, text.splitlines())) <= 80
        assert not re.search(r"[A-Za-z]-$", text, re.MULTILINE), "a name is not broken at its dash"


def test_every_option_is_in_the_long_help_under_its_topic() -> None:
    found = sections(shown("run", "--help"))
    assert [name for name in found if name in TOPICS] == [*TOPICS], "in the order of the table"
    for option in RUN:
        assert f"  {option.flag}" in found[str(option.info.topic)], option.name


def test_the_root_lists_every_command_under_what_it_is_for() -> None:
    text = shown("--help")
    listed = set(re.findall(r"(?m)^  ([a-z-]+)  ", text)) - {"--version", "--install-completion", "--show-completion"}
    assert {command.split()[0] for command in COMMANDS} == listed - {"-h"}
    assert "Commands" not in sections(text)


def test_the_short_help_has_the_most_used_options_on_one_screen_and_says_how_many_there_are_more() -> None:
    text = shown("run", "-h")
    assert text.count("\n") <= 48
    common = {option.flag for option in RUN if option.info.common}
    listed = set(re.findall(r"(?m)^  (--[a-z-]+)", text)) - {"--worse", "--last-failed", "--json"}
    assert listed == common
    assert f"{len(RUN) - len(common)} more options: agent-eval run --help" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_name_the_command_and_flags_that_it_has(command: str) -> None:
    text = shown(*command.split(), "--help")
    examples = [line.strip() for line in sections(text)["Examples"].splitlines() if "agent-eval" in line]
    assert examples
    for line in examples:
        words = shlex.split(line.partition(" |")[0])
        assert words[: 1 + len(command.split())] == ["agent-eval", *command.split()]
        for flag in filter(lambda word: word.startswith("--"), words):
            assert re.search(rf"(?m)^  (-\w, )?{flag}\b", text), flag


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["rnu"], "there is no command 'rnu'", "did you mean `run`?"),
        (["frobnicate"], "there is no command 'frobnicate'", "agent-eval -h lists the commands"),
        (["baseline", "shwo"], "there is no command 'shwo'", "did you mean `show`?"),
        (["run", "--repaets", "3"], "there is no option --repaets", "did you mean `--repeats`?"),
        (["run", "--last-faield"], "there is no option --last-faield", "did you mean `--last-failed`?"),
        (["accept"], "missing option '--reason'", "agent-eval accept -h shows how it is used"),
        (["run", "--worse", "--last-failed"], "exclude each other", "--last-failed has the worse cases too"),
        (["run", "-v", "-q"], "--verbose and --quiet exclude each other", ""),
    ],
)
def test_wrong_usage_has_the_shape_of_every_error_and_says_what_is_meant(
    words: list[str], message: str, hint: str
) -> None:
    done = agent_eval(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    first, *rest = done.stderr.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert rest == ([f"hint: {hint}"] if hint else [])
