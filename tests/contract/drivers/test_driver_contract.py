"""What every driver of agents does alike. A driver has a row: how it is made for the agent that does what it is told.

That agent takes a message as ``say TEXT`` or ``TOOL JSON-ARGUMENTS`` (tests/integration/agent/folders/wild).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from agent_eval_action.agents.base import AgentDriver, SessionEnd, SessionRequest, TurnDone
from agent_eval_action.processes.process import MARKER, pids_with_marker
from agent_eval_action.results.evalset import Content, Invocation, Part, PastEvent
from agent_eval_action.results.run_result import AttemptError, ErrorKind
from agent_eval_action.sandbox.users import descendant_pids
from support.live_agents import driving, open_session, text

TESTS: Final = Path(__file__).resolve().parents[2]
WILD: Final = TESTS / "integration" / "agent" / "folders" / "wild"
ENVIRON = {name: os.environ[name] for name in ("PATH", "HOME")}
NO_SPANS = {"OTEL_SDK_DISABLED": "true"}  # of the servers that export none: they would be waited for
TIMEOUT_S = 2.0
HISTORY = (
    PastEvent(author="user", content=text("before")),
    PastEvent(
        author="model", content=Content(role="model", parts=(Part(text="noted"),)), state_delta={"given": "past"}
    ),
)

Options = Callable[[Path, Path], dict[str, Any]]
"""Options of a driver, given google-adk's interpreter and the agent's folder."""

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _adk(python: Path, _: Path) -> dict[str, Any]:
    return {"python": python, "workers": 1}


def _adk_server(python: Path, folder: Path) -> dict[str, Any]:
    program = str(python.parent / "adk")
    return {"command": (program, "api_server", "--port", "{port}", "--session_service_uri", "memory://", str(folder))}


def _openai(*_: Path) -> dict[str, Any]:
    return {
        "command": (sys.executable, "-m", "support.obedient", "{port}"),
        "env": {"PYTHONPATH": str(TESTS), **NO_SPANS},
    }


def _a2a(*_: Path) -> dict[str, Any]:
    pytest.importorskip("a2a", reason="a2a-sdk is not installed: `make setup` installs it")
    return {"command": (sys.executable, "-m", "support.a2a_peer", "{port}"), "env": {"PYTHONPATH": str(TESTS)}}


def _command(*_: Path) -> dict[str, Any]:
    return {"command": (sys.executable, "-u", str(TESTS / "support" / "command_program.py")), "env": NO_SPANS}


def _python(*_: Path) -> dict[str, Any]:
    paths = {"PYTHONPATH": str(TESTS)}
    return {"python": Path(sys.executable), "function": "support.obedient:act", "workers": 1, "env": paths}


DRIVERS: Final[dict[str, Options]] = {
    "command": _command,
    "adk": _adk,
    "adk_server": _adk_server,
    "openai": _openai,
    "a2a": _a2a,
    "python": _python,
}
LACKS: Final[dict[str, frozenset[str]]] = {
    "openai": frozenset({"final state"}),  # a chat completion has no field for it
    # a message starts a context that is empty, and nothing reads what became of it; a card names no model
    "a2a": frozenset({"final state", "history", "model"}),
}
"""What the protocol of a driver cannot carry, and why. Everything else must be there.

What is lacking is not measured, and no guess of it is made: no final state is None, no model is None, and a session
that needs a history is not opened.
"""


WAITS: Final = frozenset({"openai", "a2a"})
"""Drivers that see the status and the header of a refusal. For the others it is an error that the agent reports."""


def drive(name: str, python: Path, folder: Path) -> Any:
    return driving(folder, ENVIRON, driver=name, timeout_s=TIMEOUT_S, **DRIVERS[name](python, folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the agent's folder: servers write beside it."""
    copy = tmp_path_factory.mktemp("agents") / "bot"
    shutil.copytree(WILD, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=DRIVERS)
async def driven(
    request: pytest.FixtureRequest, folder: Path, adk213_python: Path
) -> AsyncIterator[tuple[AgentDriver, asyncio.Future[Any]]]:
    """A driver, and a turn that takes too long while all tests of the driver run."""
    of_others = _marks()
    async with drive(request.param, adk213_python, folder) as started:
        slow = asyncio.ensure_future(turns(started, 'hang {"seconds": 60}'))
        while not (marks := _marks() - of_others) and not slow.done():  # noqa: ASYNC110 - processes wake nobody
            await asyncio.sleep(0.05)
        yield started, slow
        await asyncio.wait({slow})
        marks |= _marks() - of_others
        assert marks
    left = [Path(f"/proc/{pid}/cmdline").read_bytes() for mark in marks for pid in pids_with_marker(mark)]
    assert not left, "a driver that was stopped has left something running"


@pytest.fixture
def driver(driven: tuple[AgentDriver, Any]) -> AgentDriver:
    return driven[0]


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["driven"])


@pytest.fixture
def lacks(name: str) -> frozenset[str]:
    return LACKS.get(name, frozenset())


async def turns(driver: AgentDriver, *messages: str, **request: Any) -> tuple[list[Any], Any]:
    """Make these turns in a session of their own; return them, and the end of the session."""
    session = await open_session(driver, **request)
    made = [await session.turn(text(message)) for message in messages]
    return made, await session.close()


def answer(done: Any) -> str:
    assert isinstance(done, TurnDone), done
    return done.invocation.response_text


def trajectory(invocation: Invocation) -> list[tuple[str, Any, Any]]:
    results = {response.id: response.response for response in invocation.tool_responses()}
    return [(call.name, call.args, results.get(call.id)) for call in invocation.tool_calls()]


def _marks() -> set[str]:
    """The marks of what this process has started and that still runs; all that those start inherits them."""
    found = set()
    for pid in descendant_pids():
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            found |= {
                value[len(MARKER) + 1 :].decode() for value in variables if value.startswith(MARKER.encode() + b"=")
            }
    return found


async def test_turns_share_their_session(driver: AgentDriver) -> None:
    made, _ = await turns(driver, "say one", "say two", "conversation")
    assert [answer(done) for done in made[:2]] == ["one", "two"]
    assert "say one" in answer(made[2])
    assert all(done.invocation.duration > 0 for done in made)


async def test_tool_calls_have_arguments_and_results(driver: AgentDriver) -> None:
    made, _ = await turns(driver, 'add {"a": 1, "b": 2}')
    assert trajectory(made[0].invocation) == [("add", {"a": 1, "b": 2}, {"sum": 3})]
    assert answer(made[0]) == '{"sum": 3}'
    events = made[0].invocation.intermediate_data.invocation_events
    roles = [(event.author, event.content and event.content.role) for event in events]
    (author,) = {event.author for event in events}
    assert author in {"wild", "agent", "dice"}
    assert roles == [(author, "model"), (author, "user"), (author, None)], "the answer's own event is without its text"


async def test_usage_and_model_are_those_that_the_model_reports(driver: AgentDriver, lacks: frozenset[str]) -> None:
    made, _ = await turns(driver, "say one")
    events = made[0].invocation.intermediate_data.invocation_events
    ((model, usage),) = [(event.model_version, event.usage_metadata) for event in events if event.usage_metadata]
    assert model == (None if "model" in lacks else "obedient-1")
    assert {name: usage[name] for name in ("prompt_token_count", "total_token_count")} == {
        "prompt_token_count": 5,
        "total_token_count": 7,
    }


async def test_state_and_history_are_the_beginning(driver: AgentDriver, lacks: frozenset[str]) -> None:
    history = () if "history" in lacks else HISTORY
    made, end = await turns(driver, "conversation", "recall {}", state={"note": "x"}, history=history)
    assert '"note": "x"' in answer(made[1])
    if history:
        assert answer(made[0]).index("before") < answer(made[0]).index("noted")
        assert '"given": "past"' in answer(made[1])
    assert end == SessionEnd(None if "final state" in lacks else {"note": "x", "given": "past"})


async def test_history_that_a_protocol_cannot_carry_is_not_left_out(driver: AgentDriver, lacks: frozenset[str]) -> None:
    session = await driver.open(SessionRequest("app", "user", history=HISTORY))
    assert isinstance(session, AttemptError) == ("history" in lacks)
    if not isinstance(session, AttemptError):
        await session.close()


async def test_sessions_see_nothing_of_each_other(driver: AgentDriver) -> None:
    (_, seen), _ = await turns(driver, "say mine", "conversation", session_id="pinned", state={"note": "mine"})
    assert "mine" in answer(seen)
    both = await asyncio.gather(*(turns(driver, "conversation", "recall {}", session_id="pinned") for _ in range(2)))
    for (conversation, recalled), _ in both:
        assert "mine" not in answer(conversation) + answer(recalled)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('fail {"text": "no stock"}', ErrorKind.EXCEPTION),
        ("rate_limit", ErrorKind.RATE_LIMITED),
        ("unavailable", ErrorKind.UNAVAILABLE),
    ],
)
async def test_errors_are_values_and_the_next_session_works(driver: AgentDriver, message: str, kind: ErrorKind) -> None:
    (error,), _ = await turns(driver, message)
    assert isinstance(error, AttemptError), error
    assert error.kind is kind, error
    made, _ = await turns(driver, "say still here")
    assert answer(made[0]) == "still here"


async def test_refusal_for_the_rate_is_waited_out_where_it_is_seen_and_an_error_elsewhere(
    driver: AgentDriver, name: str
) -> None:
    (done,), _ = await turns(driver, "rate_limit once")
    if name in WAITS:
        assert answer(done) == "at last"
        assert done.throttled == 1
    else:
        assert isinstance(done, AttemptError), done
        assert done.kind is ErrorKind.RATE_LIMITED


async def test_turn_that_takes_too_long_holds_up_nobody(driven: tuple[AgentDriver, asyncio.Future[Any]]) -> None:
    (error,), _ = await driven[1]  # the other tests have had their answers meanwhile
    assert isinstance(error, AttemptError), error
    assert error.kind is ErrorKind.TIMEOUT


async def test_turn_can_be_cancelled(driver: AgentDriver) -> None:
    session = await open_session(driver)
    turn = asyncio.ensure_future(session.turn(text('hang {"seconds": 60}')))
    await asyncio.sleep(0)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    await session.close()
    made, _ = await turns(driver, "say after")
    assert answer(made[0]) == "after"
