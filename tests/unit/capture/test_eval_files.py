"""Eval files of every format are edited: other cases keep every byte, and what is written means what was asked for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic.alias_generators import to_camel

from agent_eval_action.capture import EvalFile, free_name
from agent_eval_action.capture.cases import ExpectedTurn, expected_turns, same_turns
from agent_eval_action.diagnostics.reader import members, skip_space
from agent_eval_action.errors import AgentEvalError, EvalFileError, UsageError
from agent_eval_action.results.evalset import ColumnMapping, FunctionCall

SAMPLES = Path(__file__).resolve().parents[2] / "formats" / "samples"
FEWEST_FILES, FEWEST_CASES = 80, 150
CALL = FunctionCall(name="look_up", args={"straße": [1, {"deep": 'a "quote"\n'}], "n": 1.0})
ANSWER = 'neue “Antwort”, mit "Komma"\nund Zeile'


def captured(name: str = "captured case", said: str = "wie spät?", turns: int = 1, **state: Any) -> dict[str, Any]:
    turn = {
        "user_content": {"parts": [{"text": said}], "role": "user"},
        "final_response": {"parts": [{"text": ANSWER}], "role": "model"},
        "intermediate_data": {"tool_uses": [{"name": "clock", "args": {"evalId": 1}}]},
    }
    session = {"app_name": "app", "user_id": "u", "state": state}
    return {"eval_id": name, "conversation": [turn] * turns, **({"session_input": session} if state else {})}


def other(turn: ExpectedTurn) -> ExpectedTurn:
    calls = None if turn.calls is None else (CALL, *turn.calls[1:])
    return replace(turn, calls=calls, answer=None if turn.answer is None else ANSWER)


def span(text: str, index: int) -> tuple[int, int]:
    """Where a case is in the text of a JSON file."""
    start = skip_space(text, 0)
    if text[start] == "{":
        start = next(one.value for one in members(text, start) if one.key in {"eval_cases", "evalCases"})
    elif '"data"' not in text:  # a list of turns is one case
        return 0, len(text)
    found = list(members(text, start))[index]
    return found.start, found.end


def edit_everything(file: EvalFile) -> Iterator[str]:
    """Change each case of a file alone; yields what each was."""
    data = file.path.read_bytes()
    for index, case in enumerate(file.load().eval_set.eval_cases):
        wanted = [other(turn) for turn in expected_turns(case)]
        try:
            file.replace_expectations(case.eval_id, wanted)
        except EvalFileError as error:
            assert file.path.read_bytes() == data
            yield f"refused: {error.problems[0].message}"
            continue
        before, after = data.decode("utf-8-sig"), file.path.read_bytes().decode("utf-8-sig")
        assert file.path.read_bytes()[:3] == data[:3]
        if file.path.suffix == ".json":
            (start, end), (new_start, new_end) = span(before, index), span(after, index)
            assert (before[:start], before[end:]) == (after[:new_start], after[new_end:])
        else:
            outside = [line for line in before.splitlines(keepends=True) if line not in after]
            assert len(outside) <= before[: before.rfind("\n") + 1].count("\n")
        read = file.load().eval_set.eval_cases[index]
        assert same_turns(expected_turns(read), wanted)
        yield "changed" if before != after else "expects nothing"
        file.path.write_bytes(data)


def assert_added(file: EvalFile, case: dict[str, Any]) -> None:
    """Of the file's own bytes none is gone: the new ones stand in one place."""
    data = file.path.read_bytes()
    file.add([case])
    after = file.path.read_bytes()
    head = next((at for at, (a, b) in enumerate(zip(data, after, strict=False)) if a != b), len(data))
    assert after.endswith(data[head:])
    last = file.load().eval_set.eval_cases[-1]
    assert [turn.user_content.text for turn in last.turns][-1] == case["conversation"][-1]["user_content"]["parts"][0][
        "text"
    ]
    file.path.write_bytes(data)


def added_or_refused(file: EvalFile, case: dict[str, Any]) -> str:
    try:
        assert_added(file, case)
    except EvalFileError as error:
        return error.problems[0].message
    return "added"


def holds_no_more(outcomes: list[str]) -> bool:
    return all(why == "added" or "a list of turns" in why or "recording" in why for why in outcomes)


def readable(folder: Path) -> Iterator[EvalFile]:
    for path in sorted(folder.iterdir()):
        file = EvalFile(path, folder)
        try:
            if path.is_file() and file.load().eval_set.eval_cases:
                yield file
        except EvalFileError:
            continue


@pytest.fixture(scope="module")
def public_files(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for number, entry in enumerate(json.loads((corpus / "INDEX.json").read_text())):
        source = corpus / entry["local"]
        if not entry["fam"].startswith("config") and source.suffix == ".json":
            shutil.copy(source, folder / f"{number:03}.json")
    return folder


def test_every_case_of_the_corpus_is_changed_alone(public_files: Path) -> None:
    files = list(readable(public_files))
    outcomes = [outcome for file in files for outcome in edit_everything(file)]
    assert len(files) >= FEWEST_FILES
    assert outcomes.count("changed") >= FEWEST_CASES
    refused = {outcome for outcome in outcomes if outcome.startswith("refused")}
    assert all("recording" in why or "no fixed turns" in why for why in refused), refused


def test_a_case_is_added_to_every_file_of_the_corpus_that_can_hold_one(public_files: Path) -> None:
    outcomes = [added_or_refused(file, captured(turns=2)) for file in readable(public_files)]
    assert outcomes.count("added") >= FEWEST_FILES
    assert holds_no_more(outcomes), outcomes


def windows(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


def marked(data: bytes) -> bytes:
    return b"\xef\xbb\xbf" + data


def unended(data: bytes) -> bytes:
    return data.rstrip()


def compact(data: bytes) -> bytes:
    return json.dumps(json.loads(data), separators=(",", ":"), ensure_ascii=True).encode()


def tabbed(data: bytes) -> bytes:
    return json.dumps(json.loads(data), indent="\t", ensure_ascii=False).encode() + b"\n\n"


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("layout", [windows, marked, unended, compact, tabbed])
def test_files_in_other_layouts_of_the_corpus(
    public_files: Path, tmp_path: Path, layout: Callable[[bytes], bytes]
) -> None:
    for path in public_files.iterdir():
        try:
            (tmp_path / path.name).write_bytes(layout(path.read_bytes()))
        except ValueError:
            continue
    files = list(readable(tmp_path))
    assert len(files) >= FEWEST_FILES
    assert [outcome for file in files for outcome in edit_everything(file)].count("changed") >= FEWEST_CASES
    assert holds_no_more([added_or_refused(file, captured()) for file in files])


@pytest.mark.parametrize("form", ["adk", "adk_legacy", "adk_rust", "agents_cli", "table", "trpc"])
def test_the_samples_of_each_format_are_edited(tmp_path: Path, form: str) -> None:
    for path in (SAMPLES / form).iterdir():
        if not path.name.endswith((".expected.json", ".error.txt")):
            shutil.copy(path, tmp_path)
    outcomes: list[str] = []
    for file in readable(tmp_path):
        outcomes += edit_everything(file)
        assert holds_no_more([added_or_refused(file, captured())])
    assert "changed" in outcomes


@pytest.mark.parametrize(
    ("form", "kept"),
    [
        ("adk", '{"id": "k-2", "args": {"n": 2}, "name": "two"}'),
        ("adk_legacy", '{"tool_input": {"n": 2}, "tool_name": "two", "comment": "why"}'),
        ("trpc", '{"id": "k-2", "name": "two", "arguments": {"n": 2}, "result": "done"}'),
    ],
)
def test_a_call_that_stays_keeps_its_id_its_keys_and_their_order(tmp_path: Path, form: str, kept: str) -> None:
    first = kept.replace("k-2", "k-1").replace('"n": 2', '"n": 1').replace("two", "one")
    text = {
        "adk": '{"eval_set_id": "s", "eval_cases": [{"eval_id": "a", "conversation": [{"user_content": '
        '{"parts": [{"text": "hi"}]}, "intermediate_data": {"tool_uses": [%s, %s]}}]}]}',
        "adk_legacy": '[{"name": "a", "data": [{"query": "hi", "expected_tool_use": [%s, %s]}]}]',
        "trpc": '{"evalSetId": "s", "evalCases": [{"evalId": "a", "conversation": [{"userContent": '
        '{"role": "user", "content": "hi"}, "tools": [%s, %s]}]}]}',
    }[form] % (first, kept)
    path = tmp_path / "a.evalset.json"
    path.write_text(text)
    file = EvalFile(path, tmp_path)
    loaded = file.load()
    assert loaded.format == form
    (turn,) = expected_turns(loaded.eval_set.eval_cases[0])
    file.replace_expectations("a", [replace(turn, calls=(*(turn.calls or ())[1:], CALL))])
    before, _, after = path.read_text().partition(kept)
    assert text.startswith(before)
    assert after.startswith(", {")
    assert first not in path.read_text()


@pytest.mark.parametrize("camel", [False, True])
def test_calls_that_a_file_keeps_as_events_stay_events(tmp_path: Path, camel: bool) -> None:
    def spelled(name: str) -> str:
        return to_camel(name) if camel else name

    def call_event(name: str, **args: Any) -> dict[str, Any]:
        call = {spelled("function_call"): {"name": name, "args": args}}
        return {"author": "desk", "content": {"parts": [call], "role": "model"}}

    events = spelled("invocation_events")
    turn = {
        spelled("user_content"): {"parts": [{"text": "hi"}]},
        spelled("intermediate_data"): {events: [call_event("one", a_b=1)]},
    }
    path = tmp_path / "a.evalset.json"
    case = {spelled("eval_id"): "a", "conversation": [turn]}
    path.write_text(json.dumps({"eval_set_id": "s", "eval_cases": [case]}))
    file = EvalFile(path, tmp_path)
    (expected,) = expected_turns(file.load().eval_set.eval_cases[0])
    file.replace_expectations("a", [replace(expected, calls=(FunctionCall(name="two", args={"b_c": 2}),))])
    (made,) = json.loads(path.read_text())["eval_cases"][0]["conversation"]
    assert made[spelled("intermediate_data")] == {events: [call_event("two", b_c=2)]}


def test_rows_keep_quotes_separators_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'id;"question";answer;expected_tools\r\na;"1; ""one""\r\nline";"yes";\r\nb;hi;no;"[""old""]"')
    file = EvalFile(path, tmp_path, ColumnMapping())
    b = expected_turns(file.load().eval_set.eval_cases[1])[0]
    file.replace_expectations("b", [replace(b, answer="no; or", calls=(FunctionCall(name="new", args={"x": 1}),))])
    before = b'id;"question";answer;expected_tools\r\na;"1; ""one""\r\nline";"yes";\r\n'
    assert path.read_bytes() == before + b'b;hi;"no; or";"[{""name"": ""new"", ""args"": {""x"": 1}}]"'
    assert EvalFile(path, tmp_path).add([captured("c", "so?")]) == ("c",)
    assert path.read_bytes().endswith(
        b'}]"\r\nc;so?;"neue \xe2\x80\x9cAntwort\xe2\x80\x9d, mit ""Komma""\nund Zeile"'
        b';"[{""name"": ""clock"", ""args"": {""evalId"": 1}}]"'
    )


def test_what_cannot_be_edited_is_refused_with_a_sentence_and_left_alone(tmp_path: Path) -> None:
    files = {
        "yaml.yaml": "eval_set_id: s\neval_cases:\n- eval_id: a\n  conversation:\n  - "
        "user_content: {parts: [{text: hi}]}\n    final_response: {parts: [{text: hello}]}\n",
        "scenario.json": json.dumps({"scenarios": [{"starting_prompt": "hi", "conversation_plan": "talk"}]}),
        "rows.csv": "id,prompt\na,hi\n",
        "objects.jsonl": '{"id": "a", "prompt": "hi", "reference": {"response": {"parts": [{"text": "x"}]}}}\n',
    }
    for name, text in files.items():
        path = tmp_path / name
        path.write_text(text)
        file = EvalFile(path, tmp_path)
        case = file.load().eval_set.eval_cases[0]
        turns = [replace(turn, answer="other") for turn in expected_turns(case)] or [ExpectedTurn("hi", None, "x")]
        with pytest.raises(EvalFileError, match="left as it is"):
            file.replace_expectations(case.eval_id, turns)
        with pytest.raises(EvalFileError, match="left as it is"):
            file.add([captured(turns=2)])
        assert path.read_text() == text


def test_duplicates_are_named_and_names_are_free(tmp_path: Path) -> None:
    path = tmp_path / "new.evalset.json"
    assert EvalFile(path, tmp_path).add([captured("a", "hi")]) == ("a",)
    with pytest.raises(UsageError, match=r"'a' already"):
        EvalFile(path, tmp_path).add([captured("a", "ho")])
    with pytest.raises(UsageError, match=r"case 'a' of .*new.evalset.json has the same conversation"):
        EvalFile(path, tmp_path).add([captured("b", "hi")])
    with pytest.raises(UsageError, match="same conversation"):
        EvalFile(path, tmp_path).add([captured("c", "x"), captured("d", "x")])
    EvalFile(path, tmp_path).add([captured("b", "hi")], force=True)
    EvalFile(path, tmp_path).add([captured("c", "hi", own=1)])
    assert [case["eval_id"] for case in json.loads(path.read_text())["eval_cases"]] == ["a", "b", "c"]
    assert free_name("a", ["a", "a-2"]) == "a-3"


def test_links_and_folders_are_not_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside.evalset.json"
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    EvalFile(outside, tmp_path).add([captured("a")])
    before = outside.read_bytes()
    (workspace / "link.evalset.json").symlink_to(outside)
    (workspace / "folder.evalset.json").mkdir()
    for name in ("link.evalset.json", "folder.evalset.json"):
        with pytest.raises(AgentEvalError):
            EvalFile(workspace / name, workspace).add([captured("b", "x")])
    assert outside.read_bytes() == before
