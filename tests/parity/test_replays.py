"""Replayed recordings against google-adk's own commands: what passes there passes here, and what fails there fails."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.command import agent_eval

pytestmark = pytest.mark.exhaustive
ORACLE = Path(__file__).with_name("adk_replays.py")
AGENT = '''
from google.adk.agents import LlmAgent
from google.genai import types


def weather(city: str, tool_context) -> dict:
    """The weather of a city."""
    tool_context.state["last_city"] = city
    return {"city": city, "sky": "clear"}


def book(city: str, nights: int) -> dict:
    """Book a hotel."""
    return {"booked": f"{nights} nights in {city}"}


booker = LlmAgent(
    name="booker", model="gemini-2.5-flash", description="Books hotels.", instruction="Book.", tools=[book],
)
root_agent = LlmAgent(
    name="concierge", model="gemini-2.5-flash", instruction="Help travellers.", tools=[weather], sub_agents=[booker],
)
'''


def replaced(old: str, new: str) -> str:
    assert old in AGENT
    return AGENT.replace(old, new)


MUTATIONS = {
    "unchanged": AGENT,
    "refactored": replaced('return {"city": city, "sky": "clear"}', 'return dict(city=city, sky="clear")'),
    "asynchronous_tool": replaced("def book", "async def book"),
    "tool_renamed": AGENT.replace("weather(", "forecast(").replace("[weather]", "[forecast]"),
    "tool_result": replaced('"sky": "clear"', '"sky": "cloudy"'),
    "tool_raises": replaced('    return {"booked"', '    raise ValueError("full")\n    return {"booked"'),
    "tool_removed": replaced("tools=[weather], ", ""),
    "tool_state": replaced('["last_city"]', '["city"]'),
    "argument_renamed": AGENT.replace("nights", "days"),
    "argument_added": replaced("nights: int)", "nights: int, breakfast: bool = False)"),
    "description": replaced("Book a hotel.", "Reserve a room."),
    "instruction": replaced("Help travellers.", "Help travellers, shortly."),
    "temperature": replaced(
        'instruction="Book."', 'instruction="Book.", generate_content_config=types.GenerateContentConfig(temperature=1)'
    ),
    "sub_agent_removed": replaced(", sub_agents=[booker]", ""),
    "sub_agent_renamed": replaced('name="booker"', 'name="hotels"'),
    "output_key": replaced('instruction="Book."', 'instruction="Book.", output_key="booking"'),
    "answers_itself": replaced(
        'instruction="Book."',
        'instruction="Book.", before_model_callback=lambda callback_context, llm_request: __import__('
        '"google.adk.models.llm_response", fromlist=["LlmResponse"]).LlmResponse('
        'content=types.Content(role="model", parts=[types.Part(text="Later.")]))',
    ),
    "answer_changed": replaced(
        'instruction="Book."',
        'instruction="Book.", after_agent_callback=lambda callback_context: types.Content('
        'role="model", parts=[types.Part(text="Anything else?")])',
    ),
    "result_changed": replaced(
        'instruction="Book."',
        'instruction="Book.", after_tool_callback=lambda tool, args, tool_context, tool_response: {"booked": "no"}',
    ),
    "another_call": AGENT
    + "from google.adk.agents import SequentialAgent\n"
    + 'reviewer = LlmAgent(name="reviewer", model="gemini-2.5-flash", instruction="Review.")\n'
    + 'root_agent = SequentialAgent(name="checked", sub_agents=[root_agent, reviewer])\n',
    "another_model": AGENT.replace("gemini-2.5-flash", "gemini-2.5-pro"),
}


def said(text: str) -> dict[str, Any]:
    return {"role": "model", "parts": [{"text": text}]}


def calls(name: str, **args: Any) -> dict[str, Any]:
    return {"role": "model", "parts": [{"function_call": {"name": name, "args": args}}]}


MESSAGES = ("What is the weather in Rome?", "Book two nights there.")
ANSWERS = [
    *(calls("weather", city="Rome"), said("Clear.")),
    *(calls("transfer_to_agent", agent_name="booker"), calls("book", city="Rome", nights=2), said("Booked.")),
]


@pytest.fixture(scope="module")
def adk(adk213_python: Path, tmp_path_factory: pytest.TempPathFactory):
    """google-adk's interpreter with pytest beside it, which its `test` command runs on and does not bring along."""
    extra = tmp_path_factory.mktemp("pytest")
    for name in ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments"):
        found = Path(importlib.util.find_spec(name).origin)
        found = found.parent if found.name == "__init__.py" else found
        (extra / found.name).symlink_to(found)
    (metadata,) = (extra / "pluggy").resolve().parent.glob("pluggy-*.dist-info")
    (extra / metadata.name).symlink_to(metadata)
    env = {"PATH": os.environ["PATH"], "HOME": str(extra), "PYTHONPATH": str(extra)}

    def run(*words: str | Path, text: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([adk213_python, *words], input=text, capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def agents(adk, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of agents, each with the same recordings: of the first one."""
    root = tmp_path_factory.mktemp("agents")
    first = root / "unchanged"
    (first / "tests/core/trip").mkdir(parents=True)
    (first / "__init__.py").write_text("from . import agent\n")
    (first / "agent.py").write_text(AGENT)
    events = [{"author": "user", "content": {"role": "user", "parts": [{"text": text}]}} for text in MESSAGES]
    (first / "tests/trip.json").write_text(json.dumps({"events": events}))
    spec = {"description": "d", "agent": "unchanged", "user_messages": [{"text": text} for text in MESSAGES]}
    (first / "tests/core/trip/spec.yaml").write_text(yaml.safe_dump(spec))
    adk(ORACLE, "record", first, text=json.dumps(ANSWERS))
    for name, code in MUTATIONS.items():
        if name != "unchanged":
            shutil.copytree(first, root / name, ignore=shutil.ignore_patterns("__pycache__"))
            (root / name / "agent.py").write_text(code)
            (root / name / "tests/core/trip/spec.yaml").write_text(yaml.safe_dump(spec | {"agent": name}))
            for session in (root / name).glob("tests/core/trip/generated-session*.yaml"):
                session.write_text(session.read_text().replace("app_name: unchanged", f"app_name: {name}"))
    return root


@pytest.fixture(scope="module")
def ours(agents: Path, adk213_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """By agent and recording: why it lost, "" where it did not. There is no key, and no model that could be asked."""
    (agents / ".git").mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path_factory.mktemp("home"))}
    done = agent_eval("run", "--python", adk213_python, "--baseline", "none", cwd=agents, env=env)
    shutil.rmtree(agents / ".git")
    result = json.loads((agents / ".agent-eval/out/results.json").read_text())
    assert result["totals"]["usage"]["model_calls"] == 0, done.stderr
    found: dict[str, dict[str, str]] = {"test": {}, "conformance": {}}
    for measured in result["sets"]:
        for case in measured["cases"]:
            (score,) = case["attempts"][0]["scores"]
            assert score["status"] == "scored", score
            mode = "-sse" if case["case"].endswith("-sse") else ""
            kind = "conformance" if "core" in measured["path"] else "test"
            found[kind][measured["agent"] + mode] = "" if score["score"] == 1 else score["reason"]
    return found


def test_a_fixture_passes_where_adk_test_passes(adk, agents, ours):
    options = ("--", "-c", os.devnull, "-p", "no:cacheprovider")  # not the settings of this repository
    printed = adk("-m", "google.adk.cli", "test", agents, *options, check=False).stdout
    theirs = {
        name: outcome == "PASSED" for name, outcome in re.findall(r"\[(\w+)/trip\.json\] (PASSED|FAILED)", printed)
    }
    assert theirs.keys() == MUTATIONS.keys(), printed
    assert {name: not why for name, why in ours["test"].items()} == theirs
    assert 3 <= sum(theirs.values()) <= len(MUTATIONS) - 10


def test_a_conformance_test_passes_where_adk_conformance_passes(adk, agents, ours):
    theirs = json.loads(adk(ORACLE, "conformance", agents).stdout)
    assert theirs.keys() == {f"{name}{mode}" for name in MUTATIONS for mode in ("", "-sse")}
    assert {name: not why for name, why in ours["conformance"].items()} == {
        name: not why for name, why in theirs.items()
    }
    assert 3 <= sum(not why for why in theirs.values()) <= len(MUTATIONS) - 10
