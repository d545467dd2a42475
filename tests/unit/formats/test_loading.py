"""Loading one file: what is warned about, what a session file adds, what is asked of ids and sizes."""

from __future__ import annotations

import gc
import json
import math
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.errors import EvalFileError
from agent_eval_action.formats import LoadedEvalFile, case_digest, load_eval_file
from support.eval_files import dump_eval_set

TURNS = [{"query": "q", "expected_tool_use": []}]


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def load(tmp_path: Path, value: Any, name: str = "x.evalset.json", **options: Any) -> LoadedEvalFile:
    return load_eval_file(write(tmp_path / name, value), workspace=tmp_path, **options)


def new_set(*parts: Any, **case: Any) -> Any:
    turn = {"user_content": {"parts": list(parts) or [{"text": "x"}]}}
    return {"eval_set_id": "s", "eval_cases": [{"eval_id": "a", "conversation": [turn], **case}]}


def errors(tmp_path: Path, value: Any, **options: Any) -> str:
    with pytest.raises(EvalFileError) as caught:
        load(tmp_path, value, **options)
    return str(caught.value)


def test_ids_of_lists_come_from_the_path_and_nothing_else(tmp_path):
    first = load(tmp_path, TURNS, "evals/deep/roll.test.json")
    second = load(tmp_path, TURNS, "evals/deep/roll.test.json")
    assert (first.eval_set.eval_set_id, first.eval_set.eval_cases[0].eval_id) == ("evals/deep/roll", "roll")
    assert first.eval_set == second.eval_set
    assert case_digest(first.eval_set.eval_cases[0]) == case_digest(second.eval_set.eval_cases[0])
    assert load(tmp_path, [{"name": "n", "data": TURNS}], "a.evalset.json").eval_set.eval_set_id == "a"


def test_a_session_file_gives_its_state_to_a_list(tmp_path):
    session = write(tmp_path / "s.session.json", {"id": "1", "app_name": "app", "state": {"k": 1}, "events": [{}]})
    for value in (TURNS, [{"name": "n", "data": TURNS}]):
        given = load(tmp_path, value, session_file=session).eval_set.eval_cases[0].session_input
        assert given is not None
        assert (given.app_name, given.user_id, given.state) == ("app", "", {"k": 1})
    own = [{"name": "n", "data": TURNS, "initial_session": {"app_name": "own"}}]
    case = load(tmp_path, own, session_file=session).eval_set.eval_cases[0]
    assert case.session_input is not None
    assert (case.session_input.app_name, case.session_input.state) == ("own", {})


def test_exported_sessions_have_camel_case_keys_and_sessions_of_cases_do_not_as_in_adk(tmp_path):
    session = {"appName": "app", "userId": "u", "state": {"k": 1}}
    file = write(tmp_path / "s.session.json", session)
    exported = load(tmp_path, TURNS, session_file=file).eval_set.eval_cases[0].session_input
    own = (
        load(tmp_path, [{"name": "n", "data": TURNS, "initial_session": session}]).eval_set.eval_cases[0].session_input
    )
    assert exported is not None
    assert own is not None
    assert (exported.app_name, exported.user_id, exported.state) == ("app", "u", {"k": 1})
    assert (own.app_name, own.user_id, own.state) == ("", "", {"k": 1})


def test_a_session_file_with_the_current_schema_is_an_error_as_in_adk(tmp_path):
    session = write(tmp_path / "s.session.json", {"state": {"k": 1}})
    assert "older list schema only" in errors(tmp_path, new_set(), session_file=session)


@pytest.mark.parametrize("value", [[], "x", {"state": []}, {"app_name": 3}])
def test_a_wrong_session_file_is_an_error(tmp_path, value):
    session = write(tmp_path / "s.session.json", json.dumps(value))
    assert "must be" in errors(tmp_path, TURNS, session_file=session)


@pytest.mark.parametrize("value", [{}, {"id": "1", "events": []}, {"state": None}])
def test_a_session_file_without_state_is_warned_about(tmp_path, value):
    session = write(tmp_path / "s.session.json", value)
    assert any("holds no state" in str(one) for one in load(tmp_path, TURNS, session_file=session).warnings)


def test_session_files_of_the_corpus_are_read(corpus, tmp_path):
    seen = 0
    for entry in json.loads((corpus / "INDEX.json").read_text()):
        if entry["fam"].startswith("session"):
            seen += 1
            path = write(tmp_path / "s.session.json", (corpus / entry["local"]).read_text())
            loaded = load(tmp_path, TURNS, session_file=path)
            state = json.loads(path.read_text()).get("state") or {}
            session = loaded.eval_set.eval_cases[0].session_input
            assert (session.state if session else {}) == state
            assert state or loaded.warnings
    assert seen == 5


def test_no_cases_load_with_a_warning(tmp_path):
    for value in ([], {"eval_set_id": "s", "eval_cases": []}):
        loaded = load(tmp_path, value)
        assert loaded.eval_set.eval_cases == ()
        assert any("no cases" in one.message for one in loaded.warnings)


@pytest.mark.parametrize("case_id", ["a\nb", "a\u0000", "\u202eevil", "a\u2028b", "\u200b", "", "   "])
def test_ids_that_reports_cannot_show_are_warned_about(tmp_path, case_id):
    loaded = load(tmp_path, new_set(eval_id=case_id))
    assert loaded.eval_set.eval_cases[0].eval_id == case_id
    assert any("eval_id" in one.message for one in loaded.warnings)


@pytest.mark.parametrize("case_id", ["a", "größe", "日本", "a/b:c,d", "a b", "😀"])
def test_other_ids_are_not(tmp_path, case_id):
    assert not load(tmp_path, new_set(eval_id=case_id)).warnings


@pytest.mark.parametrize("kind", ["current", "list", "spellings"])
def test_an_id_used_twice_is_an_error_with_both_lines(tmp_path, kind):
    case = {"eval_id": "a", "conversation": []}
    values = {
        "current": {"eval_set_id": "s", "eval_cases": [case, case]},
        "list": [{"name": "a", "data": TURNS}, {"name": "a", "data": TURNS}],
        "spellings": {"eval_set_id": "s", "eval_cases": [case, {"evalId": "a", "conversation": []}]},
    }
    said = errors(tmp_path, json.dumps(values[kind], indent=1))
    assert "already used" in said
    assert "first used in line" in said


def test_keys_written_twice_and_slips_are_warnings_in_file_order(tmp_path):
    text = '{"eval_set_id": "s",\n"nam": 1,\n"eval_cases": [],\n"name": "x",\n"name": "y"}'
    loaded = load(tmp_path, text)
    assert [one.line for one in loaded.warnings] == [1, 5]
    assert loaded.eval_set.name == "y"


def test_unknown_fields_of_a_case_survive_and_camel_extras_do_too(tmp_path):
    value = new_set(tags=["t"], myOwnKey={"a": None}, session_input={"app_name": "a", "user_id": "u", "seedData": 1})
    dumped = dump_eval_set(load(tmp_path, value).eval_set)["eval_cases"][0]
    assert dumped["tags"] == ["t"]
    assert dumped["myOwnKey"] == {"a": None}
    assert dumped["session_input"]["seedData"] == 1


@pytest.mark.parametrize("key", ["thought_signature", "thoughtSignature"])
@pytest.mark.parametrize("data", ["YWJj", "YQ==", "YQ", "-_-_", "+/+/", "-_+/"])
def test_base64_of_either_alphabet_is_read(tmp_path, key, data):
    part = load(tmp_path, new_set({"text": "x", key: data})).eval_set.eval_cases[0].turns[0].user_content.parts[0]
    assert part.model_extra == {"thought_signature": data}


@pytest.mark.parametrize("data", ["a", "!!!!", "YWJj\n", 5, ["YQ=="]])
def test_what_is_no_base64_is_refused(tmp_path, data):
    assert "must be base64" in errors(tmp_path, new_set({"thought_signature": data}))


@pytest.mark.parametrize(
    ("part", "hint"),
    [
        ({"txt": "x"}, "did you mean `text`?"),
        ({"inline_data": {"mime": "x"}}, None),
        ({"inline_data": {"mimeTyp": "x"}}, "did you mean `mime_type`?"),
        ({"function_call": {"nam": "x"}}, "did you mean `name`?"),
        ({"function_call": {"arguments": {}}}, "the key is `args`"),
        ({"functionResponse": {"responses": {}}}, "did you mean `response`?"),
        ({"video_metadata": {"fpss": 1}}, "did you mean `fps`?"),
        ({"tool_call": {"tool_typ": "x"}}, "did you mean `tool_type`?"),
    ],
)
def test_keys_google_genai_refuses_are_refused(tmp_path, part, hint):
    said = errors(tmp_path, new_set(part))
    assert "unknown key" in said
    assert hint is None or hint in said


def test_both_spellings_of_one_key_are_refused_where_unknown_keys_are(tmp_path):
    assert "is given twice" in errors(tmp_path, new_set({"function_call": {}, "functionCall": {}}))
    turn = {"user_content": {}, "userContent": {}}
    assert "is given twice" in errors(
        tmp_path, {"eval_set_id": "s", "eval_cases": [{"eval_id": "a", "conversation": [turn]}]}
    )


@pytest.mark.parametrize("where", ["case", "session"])
def test_both_spellings_where_unknown_keys_are_kept_count_once(tmp_path, where):
    """ADK keeps the second as an unknown key; written back, it would win."""
    twice = {"appName": "camel", "app_name": "snake", "user_id": "u"}
    value = new_set(evalId="camel") if where == "case" else new_set(session_input=twice)
    loaded = load(tmp_path, value)
    assert [one.message for one in loaded.warnings if "given twice" in one.message]
    dumped = dump_eval_set(loaded.eval_set)
    case = dumped["eval_cases"][0]
    assert "camel" in (case["eval_id"], (case["session_input"] or {}).get("app_name"))
    assert load(tmp_path, dumped).eval_set == loaded.eval_set


def test_camel_case_places_are_shown_as_written(tmp_path):
    text = json.dumps(new_set({"inlineData": {"mimeType": 3}}), indent=1)
    with pytest.raises(EvalFileError) as caught:
        load(tmp_path, text)
    (problem,) = caught.value.problems
    assert (problem.json_path or "").endswith(".parts[0].inlineData.mimeType")
    assert "mimeType" in text.splitlines()[(problem.line or 0) - 1]


def test_yaml_holds_the_same_schemas(tmp_path):
    text = "eval_set_id: s\neval_cases:\n- eval_id: a\n  conversation:\n  - userContent: {parts: [{text: 'yes'}]}\n"
    loaded = load_eval_file(write(tmp_path / "x.yaml", text), workspace=tmp_path)
    assert loaded.eval_set.eval_cases[0].line == 3
    assert loaded.eval_set.eval_cases[0].turns[0].user_content.text == "yes"
    turns = load_eval_file(write(tmp_path / "y.yml", "- query: q\n  reference: r\n"), workspace=tmp_path)
    assert (turns.format, turns.eval_set.eval_set_id) == ("adk_legacy", "y")
    with pytest.raises(EvalFileError, match=r"z\.yaml:6: unknown key `conversationsX`"):
        load_eval_file(
            write(tmp_path / "z.yaml", text.replace("user", "\n    conversationsX: 1\n    user")), workspace=tmp_path
        )


def test_numbers_no_json_has_are_read_as_adk_reads_them(tmp_path):
    text = json.dumps(new_set({"function_call": {"name": "f", "args": {"a": math.nan, "b": math.inf, "c": 10**4000}}}))
    loaded = load(tmp_path, text)
    args = loaded.eval_set.eval_cases[0].turns[0].user_content.parts[0].function_call.args
    assert math.isnan(args["a"])
    assert (args["b"], args["c"]) == (math.inf, 10**4000)
    dumped = dump_eval_set(loaded.eval_set)["eval_cases"][0]["conversation"][0]["user_content"]["parts"][0]
    assert math.isnan(dumped["function_call"]["args"]["a"])


def test_every_problem_is_reported_up_to_fifty(tmp_path):
    cases = [{"eval_id": f"c{index}", "conversation": [{"user_content": {"txt": 1}}]} for index in range(150)]
    with pytest.raises(EvalFileError) as caught:
        load(tmp_path, {"eval_set_id": "s", "eval_cases": cases})
    assert len(caught.value.problems) == 50
    assert caught.value.hint == "the file was checked no further: correct these first"
    assert "more than 50 problems" in caught.value.message


def test_a_large_set_is_read_as_a_small_one_is(tmp_path):
    """Validated in parts: every case and its line, and a problem of the last part at its own place."""
    cases = [{"eval_id": f"c{n}", "conversation": [{"user_content": {"parts": [{"text": "hi"}]}}]} for n in range(2500)]
    text = '{"eval_set_id": "s", "name": "n", "eval_cases": [\n' + ",\n".join(map(json.dumps, cases)) + "\n]}"
    found = load(tmp_path, text).eval_set
    assert [(case.eval_id, case.line) for case in found.eval_cases] == [(f"c{n}", n + 2) for n in range(2500)]
    assert found.name == "n"
    lines = text.split("\n")
    lines[2402] = lines[2402].replace('"hi"', "5")
    with pytest.raises(EvalFileError) as caught:
        load(tmp_path, "\n".join(lines))
    (problem,) = caught.value.problems
    assert (problem.line, problem.json_path) == (2403, "$.eval_cases[2401].conversation[0].user_content.parts[0].text")


@pytest.mark.parametrize("where", ["conversation", "parts", "tool_uses"])
def test_a_list_that_nobody_wrote_is_refused_and_not_gone_through(tmp_path, where):
    turn = {"user_content": {"parts": [{"text": "hi"}]}}
    case = {"eval_id": "c", "conversation": [turn]}
    if where == "conversation":
        case[where] = [1] * 20_000
    elif where == "parts":
        turn["user_content"][where] = [1] * 20_000
    else:
        turn["intermediate_data"] = {where: [1] * 20_000}
    with pytest.raises(EvalFileError) as caught:
        load(tmp_path, {"eval_set_id": "s", "eval_cases": [case]})
    (problem,) = caught.value.problems
    assert problem.message == "is a list of 20,000 items; at most 10,000 are read"


def test_the_garbage_collector_is_left_as_it_was(tmp_path):
    load(tmp_path, new_set())
    assert gc.isenabled()
    errors(tmp_path, {"eval_set_id": 3, "eval_cases": []})
    assert gc.isenabled()


def test_ten_thousand_cases_have_their_lines(tmp_path):
    cases = [
        {"eval_id": f"c{index}", "conversation": [{"user_content": {"parts": [{"text": "x"}]}}]}
        for index in range(10_000)
    ]
    text = json.dumps({"eval_set_id": "s", "eval_cases": cases}, indent=1)
    loaded = load(tmp_path, text)
    lines = text.splitlines()
    for case in loaded.eval_set.eval_cases[::997]:
        assert case.eval_id in lines[case.line]  # the line after the opening brace


def test_a_set_of_adk_rust_that_only_lists_files_holds_no_cases_and_is_no_mistake(tmp_path):
    path = tmp_path / "s.evalset.json"
    path.write_text('{"eval_set_id": "s", "name": "s", "test_files": ["a.test.json"]}')
    loaded = load_eval_file(path, workspace=tmp_path)
    assert (loaded.format, loaded.eval_set.eval_cases, loaded.warnings) == ("adk_rust", (), ())
