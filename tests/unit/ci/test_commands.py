"""Our commands carry any value, and no other text is a command."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.ci.github_actions import WorkflowCommands, command
from agent_eval_action.ci.log import neutralize
from agent_eval_action.results.evalset import Annotation
from support.runner_log import commands

NASTY = st.text(alphabet="ab:,%=;[]#\r\n \u2028\u3000", max_size=60)


@given(NASTY | st.text(max_size=60), NASTY | st.text(max_size=60))
def test_a_command_comes_back_as_it_was_meant(message: str, title: str) -> None:
    message, title = (text.encode("utf-8", "replace").decode() for text in (message, title))
    (found,) = commands(command("error", message, title=title, line=3).encode())
    # the runner trims the blanks of a property; nothing else of it may be lost
    assert (found.name, found.message, found.properties["line"]) == ("error", message, "3")
    assert found.properties.get("title", "").strip() == title.strip()
    assert set(found.properties) <= {"title", "line"}


def test_a_lone_surrogate_ends_no_stream() -> None:
    assert command("notice", "a\ud800b") == "::notice::a?b"


def test_properties_without_a_value_are_left_out() -> None:
    assert command("endgroup") == "::endgroup::"
    assert WorkflowCommands().annotation(Annotation(level="warning", message="m")) == "::warning::m"
    placed = Annotation(level="error", message="m", title="a: b", path="evals/x,y.json", line=7)
    assert WorkflowCommands().annotation(placed) == "::error file=evals/x%2Cy.json,line=7,title=a%3A b::m"


@pytest.mark.parametrize("name", ["", "a b", "error title=x", "Error", "x::y"])
def test_only_a_name_is_a_name(name: str) -> None:
    with pytest.raises(ValueError, match="is no command"):
        command(name)


@pytest.mark.parametrize(
    "text",
    [
        "::set-output name=x::y",
        " \t::stop-commands::token",
        "\u3000\xa0::error::x",
        "fine\r::add-mask::the whole log",
        "fine\n\n  ::endgroup::",
        "##[add-mask]x",
        "far into the line ##[group]x",
        "#####[error]x",
        "::::error::x",
    ],
)
def test_a_text_is_no_command(text: str) -> None:
    assert commands(text.encode()), "the model would not see this one at all"
    assert not commands(neutralize(text).encode())


@given(NASTY | st.text(max_size=200))
def test_no_text_at_all_is_a_command(text: str) -> None:
    shown = neutralize(text)
    assert not commands(shown.encode("utf-8", "replace"))
    assert shown.replace("\N{ZERO WIDTH SPACE}", "") == text.replace("\r\n", "\n").replace("\r", "\n").replace(
        "\N{ZERO WIDTH SPACE}", ""
    )


def test_other_text_stays_as_it_is() -> None:
    for text in ("a::b", "std::vector<int>", "# a [link]", "#[derive(Debug)]", "日本語: ok", "{'a': 1}"):
        assert neutralize(text) == text
