"""The schema and the reader agree: what editors accept is read, what they mark is refused."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_eval_action.config.loader import resolve
from agent_eval_action.config.options import AGENT_OPTIONS, OPTIONS
from agent_eval_action.errors import ConfigError
from support import pages
from tools.config_schema import agent_eval_schema

ROOT = Path(__file__).resolve().parents[2]

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2000),
    st.floats(allow_nan=False, allow_infinity=False, width=16),
    st.sampled_from(
        ["", "x", "a/b.json", "45m", "1h30m", "0s", "10%", "none", "off", "case", "fail", "adk", "blocking", "A=b"]
    ),
)
RULES = st.dictionaries(st.sampled_from(["mode", "threshold_on", "max_drop", "max_rise", "other"]), SCALARS, max_size=2)
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.sampled_from("ab"), SCALARS | RULES, max_size=2)
_OTHERS = ("agent", "criteria", "user_simulator", "recording")
LEAVES = [option.key for option in OPTIONS if option.key and option.name not in _OTHERS]
AGENT = st.just("dice") | st.fixed_dictionaries(
    {"path": st.just("dice")},
    optional={
        option.name: VALUES for option in AGENT_OPTIONS if option.name in ("env", "workers", "timeout_s", "evals")
    },
)


schema = functools.cache(agent_eval_schema)


@functools.cache
def validator() -> Any:
    return jsonschema.Draft202012Validator(schema())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repo").resolve()
    (root / ".git").mkdir()
    (root / "dice").mkdir()
    (root / "dice" / "agent.py").write_text("root_agent = None\n")
    return root


def accepted(folder: Path, data: Any) -> bool:
    (folder / "agent-eval.yaml").write_text(yaml.safe_dump(data))
    try:
        resolve(flags={}, environ={}, cwd=folder)
    except ConfigError:
        return False
    return True


def nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from([*LEAVES, "unknown", "gate.unknown"]), value=VALUES)
def test_editor_and_reader_agree_about_every_key(folder, key, value):
    data = nested(key, value)
    wrong_at_another_time = key == "driver" and value == "recorded"
    if not wrong_at_another_time:
        assert validator().is_valid(data) == accepted(folder, data), data


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(agents=AGENT | st.lists(AGENT, max_size=1), key=st.sampled_from(["agent", "agents"]))
def test_editor_and_reader_agree_about_agents(folder, agents, key):
    assert validator().is_valid({key: agents}) == accepted(folder, {key: agents}), agents


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(schema())
    assert not validator().is_valid({"agent": "a", "agents": ["a"]})


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.key], ids=lambda option: option.name)
def test_every_key_is_described_to_the_editor(option):
    properties = schema()["properties"]
    *section, key = str(option.key).split(".")
    for name in section:
        either = properties[name].get("anyOf", [properties[name]])  # a section that has a short form
        properties = either[-1]["properties"]
    assert properties[key]["description"].endswith(".")


def blocks() -> list[Any]:
    """Every YAML block of the documentation that is a configuration: no workflow and no file of another tool."""
    others = ("metrics_to_run", "user_messages")
    return [
        pytest.param(block.text, id=block.name)
        for block in pages.blocks()
        if not block.workflow and not block.accepted and not any(name in block.text for name in others)
    ]


def test_the_documentation_shows_configurations():
    assert sum("config.md" in str(block.id) for block in blocks()) >= 5


@pytest.mark.parametrize("text", blocks())
def test_every_configuration_in_the_documentation_is_valid(text, tmp_path):
    data = yaml.safe_load(text)
    validator().validate(data)
    (tmp_path / ".git").mkdir()
    (tmp_path / "agent-eval.yaml").write_text(text)
    for entry in [
        data.get("agent"),
        *([data["agents"]] if isinstance(data.get("agents"), str) else data.get("agents", [])),
    ]:
        if entry:
            folder = tmp_path / (entry if isinstance(entry, str) else entry.get("path", "."))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "agent.py").write_text("root_agent = None\n")
    for file in re.findall(r"criteria: (\S+\.json)", text):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("{}")
    resolve(flags={}, environ={}, cwd=tmp_path)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").rglob("agent-eval.yaml")), ids=lambda path: path.parent.name
)
def test_every_example_is_valid_where_it_lies(path):
    validator().validate(yaml.safe_load(path.read_text()))
    assert resolve(flags={}, environ={}, cwd=path.parent).settings.config == path
