"""The option `user_simulator`: a mapping, or a file that holds one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.config.criteria import UserSimulatorConfig
from agent_eval_action.config.types import Origin, UserSimulator
from support import option_values


def read(value: Any, folder: Path) -> UserSimulatorConfig:
    made: UserSimulatorConfig = option_values.read(UserSimulator, value, Origin(folder, Path("agent-eval.yaml")))
    return made


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("user.json", '{"model": "openai/x", "maxAllowedInvocations": 4, "_note": "of ours"}'),
        ("user.yaml", "model: openai/x\nmax_allowed_invocations: 4\n"),
        ("c.json", '{"criteria": {}, "userSimulatorConfig": {"model": "openai/x", "max_allowed_invocations": 4}}'),
        ("d.yml", "user_simulator_config: {model: openai/x, max_allowed_invocations: 4}\n"),
    ],
)
def test_a_file_is_as_good_as_a_mapping(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    wanted = {"model": "openai/x", "max_allowed_invocations": 4}
    assert read(name, tmp_path) == read(wanted, tmp_path) == UserSimulatorConfig(**wanted)


@pytest.mark.parametrize(
    ("value", "at", "says"),
    [
        ({"modle": "x"}, ("modle",), "unknown key `modle`"),
        ({"model": ""}, ("model",), "at least 1 character"),
        ({"type": "llm_audio"}, ("type",), "llm_audio is known, but not in this version"),
        (
            {"model_configuration": {"systemInstruction": "x"}},
            ("model_configuration",),
            "`system_instruction` cannot be",
        ),
        (7, (), "must be a file or a mapping"),
        ("usr.json", (), "names a file that does not exist"),
        ("list.json", (), "list.json holds no mapping"),
        ("broken.json", (), "broken.json"),
    ],
)
def test_what_is_wrong_is_reported_where_it_stands(tmp_path: Path, value: Any, at: tuple[str, ...], says: str) -> None:
    (tmp_path / "user.json").write_text(json.dumps({}))
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "broken.json").write_text('{"model": ')
    (issue,) = option_values.issues(UserSimulator, value, Origin(tmp_path, Path("agent-eval.yaml")))
    assert says in issue.message
    assert issue.at == at
    assert issue.hint == "did you mean `user.json`?" or value != "usr.json"
