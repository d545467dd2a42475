"""``agent-eval capture``: on a terminal, through pipes, and from files of other tools and of runs."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.command import COMMAND, agent_eval
from support.pseudo_terminal import PseudoTerminal

SAMPLES = Path(__file__).resolve().parents[2] / "formats" / "samples"
FILE = "bot/bot.evalset.json"
PROMPT = "you › "
KEEP = "or a name] "
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def cases(project: Path, file: str = FILE) -> dict[str, dict[str, Any]]:
    path = project / file
    return (
        {case["eval_id"]: case for case in json.loads(path.read_text("utf-8"))["eval_cases"]} if path.exists() else {}
    )


def said(case: dict[str, Any]) -> list[str]:
    return [turn["user_content"]["parts"][0]["text"] for turn in case["conversation"]]


def piped(project: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "capture", *words],
        cwd=project,
        input=text,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
        timeout=120,
    )


def processes_in(folder: Path) -> list[Path]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found += [process] if (process / "cwd").readlink() == folder else []
    return found


def span(operation: str, at: int, attributes: dict[str, str]) -> dict[str, Any]:
    """A span of OTLP JSON."""
    known = {"gen_ai.operation.name": operation, **attributes}
    return {
        "traceId": "ab" * 16,
        "spanId": f"{at:016x}",
        "name": operation,
        "startTimeUnixNano": str(at * 10**9),
        "endTimeUnixNano": str(at * 10**9 + 1),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in known.items()],
    }


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("width", [80, 140])
def test_a_conversation_on_a_terminal_is_kept_without_what_was_undone(project: Path, width: int) -> None:
    seen = PseudoTerminal("capture", cwd=project, width=width)
    for line in ("say hello", 'add {"a": 1, "b": 2}', "say wrong", "/undo", "/what", "say bye"):
        seen.wait_for(PROMPT)
        seen.type(line)
    seen.wait_for("agent › bye")
    seen.wait_for(PROMPT)
    seen.type("/save greet and add")
    seen.wait_for("saved: ")
    seen.wait_for(PROMPT)
    seen.type("say again")
    seen.wait_for(PROMPT)
    seen.press("^D")
    seen.wait_for(KEEP)
    seen.type("y")
    assert seen.end() == 0, seen.text
    assert said(cases(project)["greet and add"]) == ["say hello", 'add {"a": 1, "b": 2}', "say bye"]
    assert said(cases(project)["say-again"]) == ["say again"]
    assert "  → add(a=1, b=2)" in seen.lines
    assert seen.lines.count("  → add(a=1, b=2)") == 1, "what is asked again is not shown again"
    assert "the conversation has 2 turns" in seen.lines
    assert "the agent is at it" not in seen.text
    assert "run it: agent-eval run 'bot/bot.evalset.json:" in seen.text
    done = agent_eval("run", cwd=project)
    assert done.returncode == 0, done.stderr


def test_an_interrupt_asks_and_discards_at_the_second_one(project: Path) -> None:
    seen = PseudoTerminal("capture", cwd=project)
    seen.wait_for(PROMPT)
    seen.type("say hello")
    seen.wait_for(PROMPT)
    seen.interrupt()
    seen.wait_for(KEEP)
    seen.interrupt()
    assert seen.end() == 130, seen.text
    assert "not kept" in seen.text
    assert "Traceback" not in seen.text
    assert cases(project) == {}


def test_an_interrupt_while_the_agent_hangs_keeps_the_turns_before(project: Path) -> None:
    seen = PseudoTerminal("capture", cwd=project)
    seen.wait_for(PROMPT)
    seen.type("say hello")
    seen.wait_for(PROMPT)
    seen.type('hang {"seconds": 600}')
    seen.wait_for("the agent is at it")
    seen.interrupt()
    seen.wait_for("this conversation of 1 turn")
    seen.type("kept anyway")
    assert seen.end() == 0, seen.text
    assert said(cases(project)["kept anyway"]) == ["say hello"]


def test_a_termination_asks_nothing_and_ends_the_agent(project: Path) -> None:
    seen = PseudoTerminal("capture", cwd=project)
    seen.wait_for(PROMPT)
    seen.type("say hello")
    seen.wait_for(PROMPT)
    seen.type('hang {"seconds": 600}')
    seen.wait_for("the agent is at it")
    assert processes_in(project / "bot"), "the agent runs"
    seen.terminate()
    assert seen.end() == 130, seen.text
    assert not processes_in(project / "bot")
    assert cases(project) == {}


def test_a_name_that_is_taken_at_the_end_loses_nothing(project: Path) -> None:
    piped(project, "say one\n", "--name", "taken")
    seen = PseudoTerminal("capture", cwd=project)
    seen.wait_for(PROMPT)
    seen.type("say two")
    seen.wait_for(PROMPT)
    seen.press("\x04")
    seen.wait_for(KEEP)
    seen.type("taken")
    seen.wait_for("not saved: ")
    seen.wait_for(KEEP)
    seen.type("free")
    assert seen.end() == 0, seen.text
    assert {name: said(case) for name, case in cases(project).items()} == {"taken": ["say one"], "free": ["say two"]}


@pytest.mark.parametrize("words", [("--into", "new.csv"), ("--name", "taken"), ("--name", "a\x1b[31m\nb")])
def test_what_could_not_be_saved_is_refused_before_the_agent_is_asked(project: Path, words: tuple[str, ...]) -> None:
    piped(project, "say one\n", "--name", "taken")
    done = piped(project, "say two\n", *words)
    assert done.returncode == 2, done.stderr
    assert "talking to" not in done.stderr
    assert list(cases(project)) == ["taken"]


def test_a_project_without_an_agent_is_told_so(tmp_path: Path) -> None:
    done = piped(tmp_path, "say one\n")
    assert done.returncode == 2, done.stderr
    assert "no agent found" in done.stderr


def test_a_pipe_whose_words_were_not_all_obeyed_is_not_green(project: Path) -> None:
    done = piped(project, "say one\n/save a\nsay two\n/save a\n/quit\n")
    assert done.returncode == 2, done.stderr
    assert list(cases(project)) == ["a"]


def test_a_failed_turn_is_said_and_not_kept(project: Path) -> None:
    done = piped(project, "say one\nrefuse this\nrecall\n", "--name", "n", "--state", '{"own": 12}')
    assert done.returncode == 3, done.stderr
    assert "the agent failed, and this turn is not kept: " in done.stderr
    assert said(cases(project)["n"]) == ["say one", "recall"]
    assert cases(project)["n"]["session_input"]["state"] == {"own": 12}


def test_an_agents_text_commands_no_terminal_and_its_secrets_are_hidden(project: Path) -> None:
    hostile = "say \x1b]0;owned\x07\x1b[2J::set-output name=x::y \u202eevil @everyone tops3cretvalue"
    done = piped(project, hostile + "\n/save\n/quit\n")
    assert done.returncode == 0, done.stderr
    assert not CONTROL.search(done.stdout + done.stderr)
    assert "\u202e" not in done.stderr
    assert "secrets in it are replaced by ***" in done.stderr
    (case,) = cases(project).values()
    assert "tops3cretvalue" not in json.dumps(case)
    assert case["conversation"][0]["final_response"]["parts"][0]["text"].startswith("\x1b]0;owned\x07")


def test_the_agents_secrets_are_hidden_in_what_comes_from_a_file_too(project: Path) -> None:
    text = (SAMPLES / "adk_session/weather.json").read_text().replace("Rome", "tops3cretvalue")
    (project / "rome.session.json").write_text(text)
    done = agent_eval("capture", "--from", "rome.session.json", cwd=project)
    assert done.returncode == 0, done.stderr
    assert "tops3cretvalue" in text
    assert "tops3cretvalue" not in (project / FILE).read_text()
    assert "***" in (project / FILE).read_text()


@pytest.mark.parametrize("words", [(), ("--from", "rome.session.json")])
def test_what_the_configuration_redacts_is_in_no_captured_case(project: Path, words: tuple[str, ...]) -> None:
    with (project / "agent-eval.yaml").open("a") as config:
        config.write("redact: ['Rome \\d+']\n")
    session = (SAMPLES / "adk_session/weather.json").read_text().replace("Rome", "Rome 77")
    (project / "rome.session.json").write_text(session)
    done = piped(project, "say it is in Rome 77\n", *words)
    assert done.returncode == 0, done.stderr
    kept = (project / FILE).read_text()
    assert "Rome 77" not in kept
    assert "[redacted]" in kept


def test_a_duplicate_is_named_and_a_name_is_found(project: Path) -> None:
    shutil.copy(SAMPLES / "adk_session/weather.json", project / "rome.session.json")

    def captured(*words: str) -> subprocess.CompletedProcess[str]:
        return agent_eval("capture", "--from", "rome.session.json", *words, cwd=project)

    assert captured().returncode == 0
    again = captured()
    assert again.returncode == 2
    assert "case 'rome' of bot/bot.evalset.json has the same conversation already" in again.stderr
    assert captured("--force").returncode == 0
    assert list(cases(project)) == ["rome", "rome-2"]
    named = captured("--force", "--name", "rome")
    assert named.returncode == 2
    assert "has a case 'rome' already" in named.stderr
    assert "run it: agent-eval run bot/new.evalset.json:rome" in captured("--into", "bot/new.evalset.json").stderr
    several = captured()
    assert several.returncode == 2
    assert "bot has 2 eval files: bot/bot.evalset.json, bot/new.evalset.json" in several.stderr


def test_nothing_said_is_nothing_kept_and_an_agent_that_does_not_start_is_said(project: Path) -> None:
    assert piped(project, "/save\n/undo\n/help\n/quit\n").returncode == 0
    assert cases(project) == {}
    assert agent_eval("capture", "--state", "[1]", cwd=project).returncode == 2
    assert agent_eval("capture", "--case", "x", cwd=project).returncode == 2
    (project / "agent-eval.yaml").write_text("agent: {path: bot, driver: command, command: [no-such-program]}\n")
    done = piped(project, "say x\n")
    assert done.returncode == 3, done.stderr
    assert "no-such-program" in done.stderr


def test_sessions_and_traces_of_other_tools_become_cases(project: Path) -> None:
    shutil.copy(SAMPLES / "adk_session/weather.json", project / "weather.session.json")
    done = agent_eval("capture", "--from", "weather.session.json", "--name", "rome", cwd=project)
    assert done.returncode == 0, done.stderr
    rome = cases(project)["rome"]
    assert said(rome) == ["What is the weather in Rome?", "Thanks"]
    calls = rome["conversation"][0]["intermediate_data"]["tool_uses"]
    assert calls == [{"name": "weather", "args": {"city": "Rome"}}]
    assert rome["final_session_state"] == {"asked": 1}
    shutil.copy(SAMPLES / "agents_cli/trace-dataset.json", project / "trace.json")
    several = agent_eval("capture", "--from", "trace.json", cwd=project)
    assert several.returncode == 2
    assert "2 conversations: two_turns, of_a_prompt" in several.stderr
    done = agent_eval("capture", "--from", "trace.json", "--case", "two_turns", cwd=project)
    assert done.returncode == 0, done.stderr
    assert said(cases(project)["two_turns"]) == ["A bike, please.", "A day."]
    messages = {"input": ("user", "roll"), "output": ("assistant", "a 6")}
    said_by = {
        f"gen_ai.{way}.messages": json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])
        for way, (role, text) in messages.items()
    }
    call = {"gen_ai.tool.name": "roll", "gen_ai.tool.call.arguments": '{"sides": 6}'}
    spans = [
        span("execute_tool", 2, {**call, "gen_ai.conversation.id": "rolling"}),
        span("chat", 3, said_by),
    ]
    (project / "spans.json").write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    done = agent_eval("capture", "--from", "spans.json", cwd=project)
    assert done.returncode == 0, done.stderr
    (turn,) = cases(project)["rolling"]["conversation"]
    assert turn["intermediate_data"] == {"tool_uses": [{"name": "roll", "args": {"sides": 6}}]}
    assert turn["final_response"]["parts"][0]["text"] == "a 6"
    (project / "broken.json").write_text('{"eval_cases": [')
    (project / "set.yaml").write_text("eval_set_id: s\neval_cases: []\n")
    for unfit, why in (("broken.json", "is not valid JSON"), ("set.yaml", "YAML is not edited")):
        done = agent_eval("capture", "--into", unfit, cwd=project)
        assert done.returncode == 2
        assert why in done.stderr
    for wrong in ("nothing.json", "agent-eval.yaml", FILE):
        assert agent_eval("capture", "--from", wrong, cwd=project).returncode == 2


def test_a_failed_case_of_a_run_becomes_a_case_with_the_state_it_began_with(project: Path) -> None:
    turn = {"user_content": {"parts": [{"text": "recall"}]}, "final_response": {"parts": [{"text": "nothing at all"}]}}
    session = {"app_name": "bot", "user_id": "u", "state": {"own": 12}}
    hello = {"user_content": {"parts": [{"text": "say hi"}]}, "final_response": {"parts": [{"text": "hi"}]}}
    content = [
        {"eval_id": "state", "conversation": [turn], "session_input": session},
        {"eval_id": "hi", "conversation": [hello]},
    ]
    (project / "bot/s.evalset.json").write_text(json.dumps({"eval_set_id": "s", "eval_cases": content}))
    (project / "bot/test_config.json").write_text('{"criteria": {"response_match_score": 0.9}}')
    assert agent_eval("run", cwd=project).returncode == 1
    done = agent_eval(
        "capture", "--from", ".agent-eval/out/results.json", "--into", "bot/made.evalset.json", cwd=project
    )
    assert done.returncode == 0, done.stderr
    assert "correct what it expects" in done.stderr
    made = cases(project, "bot/made.evalset.json")
    assert list(made) == ["state"], "it is the one that failed"
    assert made["state"]["session_input"] == session
    assert made["state"]["conversation"][0]["final_response"]["parts"][0]["text"] == '{"own": 12}'
    wrong = agent_eval(
        "capture", "--from", ".agent-eval/out", "--case", "stat", "--into", "bot/x.evalset.json", cwd=project
    )
    assert wrong.returncode == 2
    assert "did you mean `state`" in wrong.stderr
    (project / ".agent-eval/out/attempts.jsonl").unlink()
    assert (
        "holds excerpts" in agent_eval("capture", "--from", ".agent-eval/out", "--into", "y.json", cwd=project).stderr
    )


WAITING_AGENT = """
import asyncio, pathlib
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types

async def look_up(city: str) -> str:
    while not pathlib.Path(__file__).with_name("go").exists():
        await asyncio.sleep(0.02)
    return "clear"

class Model(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        last = llm_request.contents[-1].parts[-1]
        if last.function_response:
            part = types.Part(text="it is clear")
        else:
            part = types.Part(function_call=types.FunctionCall(name="look_up", args={"city": last.text}))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))

root_agent = LlmAgent(name="bot", model=Model(model="m"), tools=[look_up])
"""


def test_a_tool_call_of_an_adk_agent_shows_while_its_tool_is_at_work(tmp_path: Path, adk213_python: Path) -> None:
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot/agent.py").write_text(WAITING_AGENT)
    (tmp_path / "agent-eval.yaml").write_text(f"agent: bot\npython: {adk213_python}\n")
    seen = PseudoTerminal("capture", cwd=tmp_path)
    seen.wait_for(PROMPT)
    seen.type("Rome")
    seen.wait_for('→ look_up(city="Rome")')
    (tmp_path / "bot/go").touch()
    seen.wait_for("agent › it is clear")
    seen.wait_for(PROMPT)
    seen.type("/save")
    seen.wait_for(PROMPT)
    seen.type("/quit")
    assert seen.end() == 0, seen.text
    # rich may draw its first frame at the very moment of the call, and then the call stands beside it
    shown = [line.removeprefix("⠋ the agent is at it") for line in seen.lines if "look_up" in line]
    assert shown == ['  → look_up(city="Rome")']
    assert cases(tmp_path)["rome"]["conversation"][0]["intermediate_data"]["tool_uses"]
