"""docs/formats.md: every JSON block has the format it stands under, and the program prints the example errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from agent_eval_action.errors import EvalFileError
from agent_eval_action.formats import FORMATS, load_eval_file

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
ODDITIES = Path(__file__).with_name("README.md").read_text()
ALL_BLOCKS = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
(SESSION,) = (block for block in ALL_BLOCKS if '"lucky"' in block)
BLOCKS = [block for block in ALL_BLOCKS if block is not SESSION]


def test_eval_file_blocks_are_read_without_a_warning(tmp_path):
    read = []
    for number, block in enumerate(BLOCKS):
        path = tmp_path / f"{number}.json"
        path.write_text(block)
        loaded = load_eval_file(path, workspace=tmp_path)
        assert loaded.warnings == ()
        read.append(loaded.format)
    first = ["adk", "adk", "adk_legacy", "adk_legacy", "adk_scenarios", "agents_cli"]
    assert read == [*first, "adk_session", "adk_rust", "trpc"]
    for name, kind in {"q.csv": "csv", "q.jsonl": "jsonl"}.items():
        (block,) = re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
        (tmp_path / name).write_text(block)
        loaded = load_eval_file(tmp_path / name, workspace=tmp_path)
        assert loaded.warnings == ()
        assert len(loaded.eval_set.eval_cases) > 1
        read.append(loaded.format)
    assert read[len(BLOCKS) :] == ["table", "table"]
    (block,) = (block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "user_messages" in block)
    (tmp_path / "spec.yaml").write_text(block)
    (tmp_path / "generated-recordings.yaml").write_text("recordings: []\n")
    events = [{"author": "user", "content": {"parts": [{"text": "What is the weather in Rome?"}]}}]
    (tmp_path / "generated-session.yaml").write_text(json.dumps({"events": events}))
    loaded = load_eval_file(tmp_path / "spec.yaml", workspace=tmp_path)
    assert (loaded.format, loaded.warnings) == ("adk_conformance", ())
    read.append(loaded.format)
    assert set(read) == set(FORMATS)


def test_the_session_block_gives_its_state(tmp_path):
    (tmp_path / "s.session.json").write_text(SESSION)
    (tmp_path / "x.test.json").write_text(BLOCKS[2])
    loaded = load_eval_file(tmp_path / "x.test.json", workspace=tmp_path, session_file=tmp_path / "s.session.json")
    session = loaded.eval_set.eval_cases[0].session_input
    assert session is not None
    assert session.state == {"lucky": True}


def test_the_program_prints_the_example_errors(monkeypatch):
    samples = Path(__file__).with_name("samples") / "adk"
    monkeypatch.chdir(samples)
    with pytest.raises(EvalFileError) as caught:
        load_eval_file(samples / "wrong_everywhere.evalset.json", workspace=samples)
    ours = str(caught.value).replace("wrong_everywhere.evalset", "wrong.evalset").splitlines()
    for line in re.findall(r"^  wrong\.evalset\.json:.*$", PAGE, re.MULTILINE):
        assert line in ours


def test_every_oddity_of_the_corpus_index_is_spoken_of(corpus):
    """By the words that name it; numbers of times fall away."""
    index = (corpus / "INDEX.md").read_text().split("## Oddities")[1].split("## Files")[0]
    oddities = re.findall(r"^\* (.*?)(?: x\d+)?: \d+$", index, re.MULTILINE)
    config = re.compile(r"^(metrics|criterion field|custom_metrics|keys: metrics_to_run|inline Python)")
    names = {
        "non-ASCII": "any script",
        "no ": "no `intermediate_data`",
        "user_content uses": "messages as `role`",
        "final_response uses": "messages as `role`",
        "tool_use": "call with an `id`",
        "eval_id is": "`eval_id` that is a file path",
        "session_input null": "`session_input: null`",
        "user_content without role": "`user_content` without a role",
        "explicit null part": "explicit `null` part fields",
        "invocation: unknown": "a turn with unknown keys",
        "case: unknown": "a case with unknown keys",
        "nested tool args": "nested tool arguments",
        "keys input": "(adk-rust)",
        "reference.response": "(agents-cli)",
        "agent_data": "(agents-cli)",
        "INVALID JSON": "comments (`//`, `#`)",
        "keys state": "state seeds",
        "final_response role null": "`role: null`",
        "intermediate_responses": "`intermediate_responses` as",
        "set without name": "set without `name`",
    }
    for oddity in oddities:
        if not config.match(oddity):
            wanted = next((words for start, words in names.items() if oddity.startswith(start)), None)
            assert wanted, oddity
            assert wanted in ODDITIES, oddity
    assert len(oddities) > 50
