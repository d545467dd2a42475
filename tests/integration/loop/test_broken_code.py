"""Code that a change breaks blocks it whatever `fail_on` says; what no code can help is inconclusive."""

from __future__ import annotations

from typing import Any

import pytest

from support.messages import headline

AGENT = "dice_agent/agent.py"


def changed(dice: Any, path: str, text: str) -> None:
    dice.branch()
    (dice.folder / path).write_text(text + (dice.folder / path).read_text())
    dice.commit("a change")


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("root = (\n", "SyntaxError: '(' was never closed (agent.py, line 1)"),
        ("import a_package_nobody_has\n", "ModuleNotFoundError: No module named 'a_package_nobody_has'"),
        ("import os\nos._exit(3)\n", "exit code 3 while it imported the agent"),
    ],
)
def test_an_agent_that_does_not_start_where_mains_does_fails(dice: Any, text: str, error: str) -> None:
    changed(dice, AGENT, text)
    ended = dice.run("--fail-on", "fail")
    assert ended.code == 1, ended.said
    decision = ended.results["decision"]
    assert decision["outcome"] == "fail"
    assert headline(decision).startswith("the agent `dice_agent` does not start: ")
    assert error in headline(decision)
    assert f"that of the base commit {dice.git('rev-parse', 'main')[:10]} starts and answers" in headline(decision)
    assert "Blocked: the agent <code>dice_agent</code> does not start" in (dice.out / "comment.md").read_text()
    assert ended.counts()[1:] == (0, 3)


def test_an_agent_that_starts_neither_here_nor_on_main_is_inconclusive(dice: Any) -> None:
    agent = dice.folder / AGENT
    agent.write_text("import a_package_nobody_has\n" + agent.read_text())
    dice.commit("main does not start")
    changed(dice, "README.md", "another word\n")
    ended = dice.run()
    assert ended.code == 3, ended.said
    assert "a_package_nobody_has" in ended.results["base"]["unavailable"]


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("sides", ["sides == 12 and tool_context.state.get('own_die')", "True"])
def test_a_tool_that_raises_in_every_attempt_where_mains_never_did_fails(dice: Any, sides: str) -> None:
    dice.branch()
    dice.change(f"    if {sides}:\n        raise ZeroDivisionError('by the change')\n")
    dice.commit("raise")
    ended = dice.run("--fail-on", "fail")
    assert ended.code == 1, ended.said
    reason = headline(ended.results["decision"])
    assert "ZeroDivisionError: by the change" in reason
    if sides != "True":
        assert reason.startswith("`players_own_die` fails with an error of the agent's code: ")
        assert "(run again 5 of 5 failures; on the base commit" in reason
        assert ended.counts()[1:] == (5, 8)


@pytest.mark.exhaustive
def test_an_error_that_main_raises_too_is_inconclusive(dice: Any) -> None:
    dice.change("    if sides == 12:\n        raise ZeroDivisionError('of main')\n")
    dice.commit("main raises")
    changed(dice, "README.md", "another word\n")
    ended = dice.run()
    assert ended.code == 3, ended.said
    assert dice.run("--fail-on", "fail").code == 0


def test_a_tool_that_raises_once_is_not_blamed_on_the_change(dice: Any) -> None:
    dice.branch()
    once = "    if sides == 12 and not MARKER.exists():\n        MARKER.touch()\n"
    dice.change(once + "        raise ZeroDivisionError('once')\n")
    dice.commit("raise once")
    assert dice.run().code == 3


REFUSED = """
    import httpx
    answer = httpx.Response(429, request=httpx.Request("POST", "http://127.0.0.1/"))
    raise httpx.HTTPStatusError("429 Too Many Requests", request=answer.request, response=answer)
"""


def test_a_storm_of_429_is_inconclusive(dice: Any) -> None:
    dice.branch()
    dice.change(REFUSED)
    dice.commit("a refused call")
    ended = dice.run("--retries", "0")
    assert ended.code == 3, ended.said
    assert "rate_limited" in headline(ended.results["decision"])
    assert ended.counts()[2] == 0, "what nobody's code can help needs no control"


def test_a_wrong_option_is_neither_broken_code_nor_inconclusive(dice: Any) -> None:
    ended = dice.run("--python", str(dice.folder / "nowhere"), "--fail-on", "never")
    assert ended.code == 2, ended.said
    assert f"there is no interpreter at {dice.folder / 'nowhere'}" in ended.said


EMPTY = """
        if os.path.exists(MARKER):
            yield LlmResponse(
                error_code="SAFETY",
                usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=9, total_token_count=9),
            )
            return
"""


@pytest.mark.exhaustive
def test_a_model_that_answers_nothing_on_either_arm_is_inconclusive_and_not_already_broken_on_main(dice: Any) -> None:
    """Main's history has answers to every case; now the model refuses to answer, whoever asks."""
    model = dice.folder / "dice_agent" / "rule_based_model.py"
    text = f"import os\n\nMARKER = {str(dice.marker)!r}\n\n" + model.read_text().replace(
        "from collections", "from collections", 1
    )
    head, sep, tail = text.partition("        instruction = _text_of(llm_request.config.system_instruction)\n")
    model.write_text(head + EMPTY + sep + tail)
    dice.commit("main's model answers nothing while the marker is there")
    dice.marker.touch()
    changed(dice, "README.md", "another word\n")
    ended = dice.run()
    assert ended.code == 3, ended.said
    reason = headline(ended.results["decision"])
    assert "the model answers nothing, neither here (" in reason
    assert "the model or its service is failing" in reason
    assert ended.counts()[2] > 0
    dice.marker.unlink()
    assert dice.run().code == 0


@pytest.mark.exhaustive
def test_without_a_base_code_that_does_not_start_is_inconclusive(dice: Any) -> None:
    agent = dice.folder / AGENT
    agent.write_text("import a_package_nobody_has\n" + agent.read_text())
    dice.commit("the only commit there is to ask")
    dice.git("checkout", "-q", "--orphan", "alone")
    dice.commit("alone")
    dice.git("branch", "-D", "main")
    assert dice.run().code == 3
