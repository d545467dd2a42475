"""Programs that answer lines with lines: real processes, in Python and in JavaScript."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.agents.base import SessionEnd, TurnDone
from agent_eval_action.results.evalset import Content, Part, PastEvent
from agent_eval_action.results.run_result import AttemptError, ErrorKind
from support.live_agents import driving, make_driver, open_session, text

PROGRAM = """
import json, os, subprocess, sys, time

child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL)
print("ready", flush=True)
print("a line for the log", file=sys.stderr, flush=True)
turns = {}
for line in sys.stdin:
    asked = json.loads(line)
    said = asked["user_text"]
    turns.setdefault(asked["session_id"], []).append(said)
    answer = {"text": "heard " + said}
    if said == "who":
        seen = {"pid": os.getpid(), "child": child.pid, "turns": turns, "cwd": os.getcwd(), "env": sorted(os.environ)}
        answer = {"text": json.dumps(seen)}
    elif said == "asked":
        answer = {"text": json.dumps(asked)}
    elif said == "tools":
        calls = [{"name": "add", "args": {"a": 1}, "id": "x", "result": {"sum": 2}}, {"name": "log", "args": {}}]
        usage = {"input_tokens": 5, "output_tokens": 7}
        answer = {"text": "2", "tool_calls": calls, "state": {"sum": 2}, "usage": usage, "model": "m"}
    elif said == "messages":
        calls = [{"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}]
        answer = {"messages": [{"role": "assistant", "content": "old"}, {"role": "user", "content": said},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c", "content": "found"}, {"role": "assistant", "content": "new"}]}
    elif said == "both":
        handed = {"role": "user", "content": "from another agent"}
        answer = {"messages": [{"role": "user", "content": said}, handed, {"role": "assistant", "content": "done"}],
            "tool_calls": [{"name": "pay", "args": {}}], "text": "done"}
    elif said.startswith("{"):
        answer = json.loads(said)
    elif said == "error":
        answer = {"error": "no \\u001b[31mmodel"}
    elif said == "noise":
        print("\\x00 not json", json.dumps({"level": "info", "message": "x"}), "[" * 100000, sep="\\n", flush=True)
        print(json.dumps({"text": "of another", "session_id": "another"}), flush=True)
    elif said == "garbage":
        print("no json", flush=True)
        sys.exit(3)
    elif said == "twice":
        print(json.dumps({"text": "first"}), flush=True)
    elif said == "huge":
        sys.stdout.write("x" * (70 << 20))
    elif said == "hang":
        time.sleep(600)
    elif said == "surrogate":
        answer = '{"text": "\\\\ud800 and \\\\u0000", "tool_calls": [{"name": "x", "args": "text"}], "error": null}'
        print('{"level": "warn", "error": null}', flush=True)
        print(answer, flush=True)
        continue
    print(json.dumps(answer), flush=True)
"""

JAVASCRIPT = """
const readline = require('node:readline');
readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const { case_id, turn, user_text, session_id } = JSON.parse(line);
  const tool_calls = [{ name: 'multiply', args: { a: 6, b: turn } }];
  console.log(JSON.stringify({ text: `${user_text}: ${6 * turn}`, tool_calls }));
});
"""


def program(folder: Path, **options: Any) -> dict[str, Any]:
    (folder / "agent_program.py").write_text(PROGRAM)
    command = {"driver": "command", "command": (sys.executable, "agent_program.py"), "workers": 1}
    return {**command, "env": {"OTEL_SDK_DISABLED": "true"}, **options}


async def ask(session: Any, words: str) -> Any:
    done = await session.turn(text(words))
    assert isinstance(done, TurnDone), done
    return done.invocation


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie of a test's container does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_request_has_what_was_said_before_and_the_state(tmp_path: Path) -> None:
    past = PastEvent(author="user", content=Content(role="user", parts=(Part(text="before"),)), state_delta={"b": 2})
    async with driving(tmp_path, **program(tmp_path)) as driver:
        session = await open_session(driver, session_id="s", history=(past,), state={"a": 1})
        assert (await ask(session, "first")).response_text == "heard first"
        asked = json.loads((await ask(session, "asked")).response_text)
        assert await session.close() == SessionEnd(None)
    assert (asked["session_id"], asked["turn"], asked["user_id"], asked["app_name"]) == ("s", 1, "user", "app")
    assert asked["state"] == {"a": 1, "b": 2}
    assert [message["content"] for message in asked["messages"]] == ["before", "first", "heard first"]
    assert asked["content"] == {"role": "user", "parts": [{"text": "asked"}]}


async def test_calls_results_state_and_usage_are_the_turn(tmp_path: Path) -> None:
    async with driving(tmp_path, **program(tmp_path)) as driver:
        session = await open_session(driver)
        made = await ask(session, "tools")
        listed = await ask(session, "messages")
        end = await session.close()
    assert [(call.name, call.args) for call in made.tool_calls()] == [("add", {"a": 1}), ("log", {})]
    assert [(result.id, result.name, result.response) for result in made.tool_responses()] == [("x", "add", {"sum": 2})]
    assert made.response_text == "2"
    last = made.intermediate_data.invocation_events[-1]
    assert (last.model_version, last.usage_metadata) == (
        "m",
        {"prompt_token_count": 5, "candidates_token_count": 7},
    )
    assert [(call.name, call.args) for call in listed.tool_calls()] == [("find", {"q": 1})]
    assert listed.tool_responses()[0].response == {"result": "found"}
    assert listed.response_text == "new"
    assert end == SessionEnd({"sum": 2})


async def test_sessions_share_a_program_in_turn_and_nothing_is_left(tmp_path: Path) -> None:
    environ = {"PATH": "/usr/bin:/bin", "GITHUB_TOKEN": "secret"}
    async with driving(tmp_path, environ, **program(tmp_path)) as driver:
        first = await open_session(driver)
        waiting = asyncio.ensure_future(open_session(driver))
        seen = json.loads((await ask(first, "who")).response_text)
        assert not waiting.done()
        await first.close()
        second = await waiting
        again = json.loads((await ask(second, "who")).response_text)
        await second.close()
        alone = await open_session(driver, alone=True)
        fresh = json.loads((await ask(alone, "who")).response_text)
        await alone.close()
    assert again["pid"] == seen["pid"] != fresh["pid"]
    assert list(again["turns"].values()) == [["who"], ["who"]]
    assert "GITHUB_TOKEN" not in seen["env"]
    assert not [name for name in seen["env"] if name.startswith("OTEL_EXPORTER")], "it has turned its spans off"
    assert seen["cwd"] == str(tmp_path)
    made = (seen["pid"], seen["child"], fresh["pid"], fresh["child"])
    for _ in range(100):  # a process that was killed is seen for a moment yet
        if not any(map(is_alive, made)):
            break
        await asyncio.sleep(0.05)
    assert not any(map(is_alive, made))


async def test_as_many_programs_run_as_workers_say(tmp_path: Path) -> None:
    async with driving(tmp_path, **program(tmp_path, workers=2)) as driver:
        sessions = [await open_session(driver) for _ in range(2)]
        seen = await asyncio.gather(*(ask(session, "who") for session in sessions))
    assert len({json.loads(turn.response_text)["pid"] for turn in seen}) == 2


async def test_an_error_is_one_turns_and_noise_is_for_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the results are written below the working directory
    async with driving(tmp_path, **program(tmp_path)) as driver:
        session = await open_session(driver, session_id="s")
        failed = await session.turn(text("error"))
        assert isinstance(failed, AttemptError)
        assert (failed.kind, failed.turn) == (ErrorKind.EXCEPTION, 0)
        assert "\x1b" not in failed.message
        assert (await ask(session, "noise")).response_text == "heard noise"
        hostile = await ask(session, "surrogate")
        hostile.model_dump_json()
        assert "and" in hostile.response_text
        assert [call.args for call in hostile.tool_calls()] == [{"arguments": "text"}]
    log = next(tmp_path.rglob("bot.log")).read_text()
    assert "a line for the log" in log
    assert '"level": "info"' in log


@pytest.mark.parametrize(
    "answer",
    [
        {"text": 4},
        {"text": "paid", "tool_calls": {"name": "pay"}},
        {"text": "paid", "tool_calls": ["pay"]},
        {"text": "paid", "tool_calls": [{"tool": "pay"}]},
        {"messages": "paid"},
        {"text": "paid", "state": 1},
    ],
    ids=json.dumps,
)
async def test_what_would_be_passed_over_in_an_answer_is_an_error(tmp_path: Path, answer: dict[str, Any]) -> None:
    async with driving(tmp_path, **program(tmp_path)) as driver:
        session = await open_session(driver)
        failed = await session.turn(text(json.dumps(answer)))
        assert isinstance(failed, AttemptError), failed
        assert failed.kind == ErrorKind.OUTPUT
        assert (await ask(session, "on")).response_text == "heard on"


async def test_calls_count_beside_messages_without_any(tmp_path: Path) -> None:
    async with driving(tmp_path, **program(tmp_path)) as driver:
        turn = await ask(await open_session(driver), "both")
    assert [call.name for call in turn.tool_calls()] == ["pay"]
    assert turn.response_text == "done"


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize(
    ("said", "kind", "part"),
    [
        ("garbage", ErrorKind.DIED, "no json"),
        ("hang", ErrorKind.TIMEOUT, "timeout_s"),
        ("huge", ErrorKind.OUTPUT, "larger"),
    ],
)
async def test_a_program_that_fails_is_replaced(tmp_path: Path, said: str, kind: ErrorKind, part: str) -> None:
    async with driving(tmp_path, **program(tmp_path, timeout_s=2 if said == "hang" else 30)) as driver:
        session = await open_session(driver)
        before = json.loads((await ask(session, "who")).response_text)
        failed = await session.turn(text(said))
        assert isinstance(failed, AttemptError), failed
        assert (failed.kind, failed.turn) == (kind, 1)
        assert part in failed.message
        await session.close()
        assert not is_alive(before["pid"])
        assert (await ask(await open_session(driver), "x")).response_text == "heard x"


@pytest.mark.exhaustive
async def test_an_answer_nobody_asked_for_is_no_answer_to_the_next_turn(tmp_path: Path) -> None:
    async with driving(tmp_path, **program(tmp_path)) as driver:
        session = await open_session(driver)
        assert (await ask(session, "twice")).response_text == "first"
        await asyncio.sleep(0.2)
        failed = await session.turn(text("next"))
    assert isinstance(failed, AttemptError), failed
    assert failed.kind is ErrorKind.PROTOCOL


async def test_a_turn_that_is_given_up_leaves_no_answer_behind(tmp_path: Path) -> None:
    async with driving(tmp_path, **program(tmp_path)) as driver:
        session = await open_session(driver)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.turn(text("hang")), 0.5)
        await session.close()
        assert (await ask(await open_session(driver), "x")).response_text == "heard x"


async def test_a_command_without_its_program_is_an_error_of_the_environment(tmp_path: Path) -> None:
    driver = make_driver(tmp_path, driver="command", command=("no-such-program",))
    failed = await driver.start()
    await driver.stop()
    assert isinstance(failed, AttemptError)
    assert failed.kind is ErrorKind.ENVIRONMENT


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
async def test_a_program_of_adk_rusts_protocol_in_javascript(tmp_path: Path) -> None:
    (tmp_path / "agent.js").write_text(JAVASCRIPT)
    async with driving(
        tmp_path, driver="command", command=(str(shutil.which("node")), "agent.js"), workers=1
    ) as driver:
        session = await open_session(driver)
        await ask(session, "zero")
        made = await ask(session, "six")
    assert made.response_text == "six: 6"
    assert [(call.name, call.args) for call in made.tool_calls()] == [("multiply", {"a": 6, "b": 1})]
