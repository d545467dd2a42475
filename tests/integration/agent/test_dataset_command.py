"""Programs that answer whole datasets, as the extensions of agents-cli do: real processes over real files."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.agents.base import SessionEnd, TurnDone
from agent_eval_action.errors import ConfigError
from agent_eval_action.processes.process import MARKER
from agent_eval_action.results.evalset import Content, Part, PastEvent
from agent_eval_action.results.run_result import AttemptError, AttemptKey, ErrorKind
from support.command import agent_eval
from support.live_agents import driving, make_driver, open_session, text

PROGRAM = Path(__file__).resolve().parents[2] / "support" / "dataset_program.py"
COMMAND = (sys.executable, "extension.py", "--dataset", "{dataset}", "--output={output}")
HOSTNAME = Path("/etc/hostname")


def program(folder: Path, **options: Any) -> dict[str, Any]:
    shutil.copy(PROGRAM, folder / "extension.py")
    return {"driver": "command", "command": COMMAND, **options}


def datasets(folder: Path) -> list[list[dict[str, Any]]]:
    """The cases that each program was given."""
    return [json.loads(line)["eval_cases"] for line in (folder / "datasets.jsonl").read_text().splitlines()]


def content(words: str) -> dict[str, Any]:
    return {"parts": [{"text": words}]}


def key(case: str, repeat: int = 0) -> AttemptKey:
    return AttemptKey("bot", "set", case, repeat)


async def said(driver: Any, words: str, **request: Any) -> Any:
    session = await open_session(driver, **request)
    done = await session.turn(text(words))
    assert await session.close() == SessionEnd(None)
    return done.invocation if isinstance(done, TurnDone) else done


async def test_turns_that_wait_go_together_and_each_gets_its_answer(tmp_path: Path) -> None:
    async with driving(tmp_path, **program(tmp_path)) as driver:
        asked = [said(driver, f"say {n}", key=key(name)) for n, name in enumerate(["a", "b", "a"])]
        made = await asyncio.gather(*asked)
        assert [turn.response_text for turn in made] == ["heard say 0", "heard say 1", "heard say 2"]
        (cases,) = datasets(tmp_path)
        assert [case["eval_case_id"] for case in cases] == ["a", "b", "a-2"]
        assert [case["prompt"]["parts"][0]["text"] for case in cases] == ["say 0", "say 1", "say 2"]


async def test_the_trace_is_the_turn(tmp_path: Path) -> None:
    async with driving(tmp_path, **program(tmp_path)) as driver:
        turn = await said(driver, "tools")
    assert [(call.name, call.args) for call in turn.tool_calls()] == [("add", {"a": 1})]
    assert [result.response for result in turn.tool_responses()] == [{"sum": 2}]
    assert turn.response_text == "heard tools"
    assert turn.user_content.text == "tools"


async def test_a_session_goes_on_and_begins_with_what_was_before(tmp_path: Path) -> None:
    history = (
        PastEvent(author="user", content=text("before")),
        PastEvent(author="bot", content=Content(role="model", parts=(Part(text="noted"),)), state_delta={"x": 1}),
    )
    async with driving(tmp_path, **program(tmp_path)) as driver:
        session = await open_session(driver, history=history, state={"given": True})
        first = await session.turn(text("one"))
        second = await session.turn(text("conversation"))
    assert first.invocation.response_text == "heard one"
    for part in ("before", "noted", "one", "heard one", "conversation"):
        assert f'"{part}"' in second.invocation.response_text
    events = datasets(tmp_path)[0][0]["agent_data"]["turns"][0]["events"]
    assert [event.get("state_delta") for event in events] == [None, {"x": 1}, {"given": True}]
    assert [event.get("state_delta") for event in datasets(tmp_path)[1][0]["agent_data"]["turns"][0]["events"]] == [
        None,
        {"x": 1},
        {"given": True},
        None,
        None,
    ]


async def test_a_case_that_is_left_out_was_not_answered(tmp_path: Path) -> None:
    async with driving(tmp_path, **program(tmp_path)) as driver:
        kept, lost = await asyncio.gather(said(driver, "say a", key=key("a")), said(driver, "drop", key=key("b")))
    assert kept.response_text == "heard say a"
    assert (lost.kind, lost.message) == (ErrorKind.EXCEPTION, "the program left the case out of what it wrote")


@pytest.mark.parametrize(
    ("words", "kind", "part"),
    [
        ("exit", ErrorKind.DIED, "ended with exit code 3"),
        ("hang", ErrorKind.TIMEOUT, "longer than timeout_s (1 s) for each of 1 case"),
        ("nothing", ErrorKind.PROTOCOL, "does not exist"),
        ("link", ErrorKind.PROTOCOL, "wrote no dataset"),
        ("garbage", ErrorKind.PROTOCOL, "no JSON"),
        ("deep", ErrorKind.PROTOCOL, "no JSON"),
        ("list", ErrorKind.PROTOCOL, "it has no `eval_cases`"),
        ("twice", ErrorKind.PROTOCOL, "more than once"),
        ("silent", ErrorKind.PROTOCOL, "has no answer"),
        ("other", ErrorKind.PROTOCOL, "answer to another message"),
    ],
)
async def test_what_goes_wrong_is_said_and_the_next_case_is_answered(
    tmp_path: Path, words: str, kind: ErrorKind, part: str
) -> None:
    async with driving(tmp_path, timeout_s=1, **program(tmp_path)) as driver:
        failed = await said(driver, words)
        assert isinstance(failed, AttemptError)
        assert (failed.kind, part in failed.message) == (kind, True), failed
        assert HOSTNAME.read_text().strip() not in failed.message
        if words == "exit":
            assert "the reason" in failed.traceback
        assert (await said(driver, "say next")).response_text == "heard say next"


async def test_one_that_runs_alone_has_a_program_of_its_own(tmp_path: Path) -> None:
    async with driving(tmp_path, **program(tmp_path)) as driver:
        failed = await asyncio.gather(*(said(driver, words, key=key(words)) for words in ("say a", "exit")))
        assert {error.kind for error in failed} == {ErrorKind.DIED}
        again = [said(driver, words, key=key(words), alone=True) for words in ("say a", "exit")]
        good, bad = await asyncio.gather(*again)
    assert good.response_text == "heard say a"
    assert bad.kind is ErrorKind.DIED
    assert [len(cases) for cases in datasets(tmp_path)] == [2, 1, 1]


async def test_nothing_is_left_when_a_turn_is_given_up_or_the_driver_stops(tmp_path: Path) -> None:
    async with driving(tmp_path, **program(tmp_path)) as driver:
        session = await open_session(driver)
        turn = asyncio.create_task(session.turn(text("hang")))
        await begun(tmp_path, 1)
        turn.cancel()
        assert (await said(driver, "say next")).response_text == "heard say next"
        stopped = asyncio.create_task(said(driver, "hang"))
        await begun(tmp_path, 3)
    assert (await stopped).kind is ErrorKind.STOPPED
    assert not running_with(MARKER, str(tmp_path))


async def begun(folder: Path, programs: int) -> None:
    """Wait until so many programs have read their dataset."""
    log = folder / "datasets.jsonl"
    while not log.exists() or len(log.read_text().splitlines()) < programs:  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.02)


def running_with(marker: str, folder: str) -> list[str]:
    """The command lines of marked processes that run in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str((entry / "cwd").readlink()) == folder and marker.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text())
        except OSError:
            continue
    return found


async def test_texts_that_no_file_can_hold_are_answered_all_the_same(tmp_path: Path) -> None:
    async with driving(tmp_path, **program(tmp_path)) as driver:
        turn = await said(driver, "surrogate")
    assert turn.response_text.startswith("heard ")


async def test_what_is_nested_deeply_is_an_answer_or_an_error(tmp_path: Path) -> None:
    async with driving(tmp_path, **program(tmp_path)) as driver:
        made = await said(driver, "nested")
        assert isinstance(made, AttemptError) or made.tool_calls()
        assert (await said(driver, "say next")).response_text == "heard say next"


async def test_a_command_without_its_program_is_an_error_of_the_environment(tmp_path: Path) -> None:
    async with driving(tmp_path, driver="command", command=("no-such-program", "{dataset}", "{output}")) as driver:
        failed = await said(driver, "say a")
    assert (failed.kind, "no program `no-such-program`" in failed.message) == (ErrorKind.ENVIRONMENT, True)


def test_one_placeholder_without_the_other_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\{output\}"):
        make_driver(tmp_path, driver="command", command=("answer", "--dataset", "{dataset}"))


@pytest.mark.parametrize(("asked", "code"), [("say a", 0), ("drop", 3)])
def test_a_dataset_is_gated_and_what_was_dropped_is_not_measured(tmp_path: Path, asked: str, code: int) -> None:
    bot = tmp_path / "bot"
    bot.mkdir()
    program(bot)
    cases = [
        {
            "eval_case_id": name,
            "prompt": {"parts": [{"text": words}]},
            "reference": {"parts": [{"text": f"heard {words}"}]},
        }
        for name, words in (("one", "say b"), ("two", asked))
    ]
    (bot / "dataset.json").write_text(json.dumps({"eval_cases": cases}))
    agent = {"path": "bot", "driver": "command", "command": " ".join(COMMAND), "evals": "bot/dataset.json"}
    (tmp_path / "agent-eval.yaml").write_text(json.dumps({"agent": agent, "criteria": {"response_match_score": 0.9}}))
    done = agent_eval("run", cwd=tmp_path)
    assert done.returncode == code, done.stderr
    if code:
        assert "left the case out" in done.stdout + done.stderr
