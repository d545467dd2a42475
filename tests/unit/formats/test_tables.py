"""Tables: which column holds what, ids that stay, rows that are wrong, and rows that stream."""

from __future__ import annotations

import csv
import io
import json
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_eval_action.config.loader import resolve
from agent_eval_action.diagnostics.tables import MAX_ROW_BYTES, Table
from agent_eval_action.errors import ConfigError, EvalFileError
from agent_eval_action.formats import LoadedEvalFile, case_digest, load_eval_file
from agent_eval_action.results.evalset import ColumnMapping, DatasetCase
from agent_eval_action.run.loader import Loader, discover_eval_files, validate_paths


def load(tmp_path: Path, text: str | bytes, name: str = "q.csv", **columns: object) -> LoadedEvalFile:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    mapping = ColumnMapping.model_validate(columns) if columns else None
    return load_eval_file(path, workspace=tmp_path, columns=mapping)


def only_case(loaded: LoadedEvalFile) -> DatasetCase:
    (case,) = loaded.eval_set.eval_cases
    assert isinstance(case, DatasetCase)
    return case


def problems(error: pytest.ExceptionInfo[EvalFileError]) -> list[tuple[int | None, str]]:
    return [(problem.line, problem.message) for problem in error.value.problems]


def test_a_mapping_says_what_each_column_holds(tmp_path: Path) -> None:
    text = "key,ask,ideal,uses,said,topic,owner\n"
    text += 'k1,Now?,Yes,"look, book","[{""role"": ""user"", ""content"": ""Hi""}]",a,b'
    names = {"id": "key", "prompt": "ask", "reference": "ideal", "expected_tools": "uses", "history": "said"}
    case = only_case(load(tmp_path, text, **names, metadata=("topic",)))
    (turn,) = case.turns
    assert (case.eval_id, turn.user_content.text, turn.response_text) == ("k1", "Now?", "Yes")
    assert [call.name for call in turn.tool_calls()] == ["look", "book"]
    assert [(event.author, event.content and event.content.text) for event in case.history] == [("user", "Hi")]
    assert case.metric_fields["topic"] == "a"
    assert "owner" not in case.metric_fields


def test_a_path_leads_into_a_column_of_objects_in_both_kinds_of_file(tmp_path: Path) -> None:
    row = {"inputs": {"city": "Rome", "days": 3}, "outputs": {"plan": {"text": "Go"}}}
    cells = io.StringIO()
    writer = csv.writer(cells)
    writer.writerow(row)
    writer.writerow(map(json.dumps, row.values()))
    columns = {"prompt": "inputs.city", "reference": "outputs.plan.text"}
    for name, text in {"a.jsonl": json.dumps(row), "a.csv": cells.getvalue()}.items():
        (turn,) = only_case(load(tmp_path, text, name, **columns)).turns
        assert (turn.user_content.text, turn.response_text) == ("Rome", "Go")


def test_a_column_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(EvalFileError) as error:
        load(tmp_path, "question,ideal\na,b\n", prompt="questoin", metadata=("ideel",))
    assert [problem.hint for problem in error.value.problems] == ["did you mean `question`?", "did you mean `ideal`?"]


@pytest.mark.parametrize("name", ["q.jsonl", "q.json"])
def test_what_only_a_late_row_has_is_a_column(tmp_path: Path, name: str) -> None:
    rows = [{"prompt": f"Number {number}?"} for number in range(200)]
    rows.append({"prompt": "Pay.", "expected_tools": ["pay"], "reference": "Paid."})
    text = json.dumps(rows) if name == "q.json" else "\n".join(map(json.dumps, rows))
    (turn,) = load(tmp_path, text, name).eval_set.eval_cases[-1].turns
    assert ([call.name for call in turn.tool_calls()], turn.response_text) == (["pay"], "Paid.")


def test_expected_calls_are_json_or_names_and_nothing_between(tmp_path: Path) -> None:
    cells = [' [{"name": "roll_die"}]\n', "roll_die,\nroll_die"]
    rows = [{"prompt": f"Roll {cell}", "expected_tools": cell} for cell in cells]
    cases = load(tmp_path, "\n".join(map(json.dumps, rows)), "q.jsonl").eval_set.eval_cases
    assert [[call.name for call in case.turns[0].tool_calls()] for case in cases] == [["roll_die"], ["roll_die"] * 2]
    for cell in ("[{'name': 'roll_die'}]", "[roll_die]", '{"name": "roll_die"'):
        with pytest.raises(EvalFileError) as error:
            load(tmp_path, json.dumps({"prompt": "Roll.", "expected_tools": cell}), "q.jsonl")
        assert [line for line, _ in problems(error)] == [1]


def test_ids_that_are_made_stay_when_rows_move_and_references_change(tmp_path: Path) -> None:
    before = load(tmp_path, "prompt,reference\nWhy me?,a\nGrüße,b\n").eval_set.eval_cases
    after = load(tmp_path, "prompt,reference\nGrüße,b\nNew,x\nWhy me?,c\n").eval_set.eval_cases
    ids = {case.turns[0].user_content.text: case.eval_id for case in before}
    assert {case.turns[0].user_content.text: case.eval_id for case in after if case.eval_id in ids.values()} == ids
    assert case_digest(before[1]) == case_digest(after[0])
    assert case_digest(before[0]) != case_digest(after[2])


def test_rows_that_ask_the_same_are_cases_of_their_own_and_are_said_once(tmp_path: Path) -> None:
    loaded = load(tmp_path, "prompt\nHi\nHi\nHi\n")
    assert len({case.eval_id for case in loaded.eval_set.eval_cases}) == 3
    assert [problem.line for problem in loaded.warnings] == [3]
    assert "2 rows" in loaded.warnings[0].message


def test_many_rows_that_ask_the_same_take_no_longer_than_others(tmp_path: Path) -> None:
    begin = time.process_time()
    assert len(load(tmp_path, "prompt\n" + "Hi\n" * 10_000).eval_set.eval_cases) == 10_000
    assert time.process_time() - begin < 5  # it took 15 s when each looked for its number from the first


def test_ids_that_are_given_are_given_once(tmp_path: Path) -> None:
    with pytest.raises(EvalFileError) as error:
        load(tmp_path, "id,prompt\na,x\nb,\na,z\n")
    assert [line for line, _ in problems(error)] == [3, 4]
    assert "line 2" in problems(error)[1][1]


def test_a_prompt_that_only_looks_like_json_is_sent_and_said(tmp_path: Path) -> None:
    text = '[{"role": "user", "content": "cut o'
    cells = io.StringIO()
    csv.writer(cells).writerows([["prompt"], [text]])
    loaded = load(tmp_path, cells.getvalue())
    assert only_case(loaded).turns[0].user_content.text == text
    assert [problem.line for problem in loaded.warnings] == [2]


@pytest.mark.parametrize(
    ("column", "value", "hint"),
    [
        ("history", [{"role": "user", "parts": [{"text": 5}]}], "`columns: {history: history.role}`"),
        ("reference", {"messages": [{"content": "no role"}]}, '[{"role": "user", "content": "..."}]'),
    ],
)
def test_the_hint_is_that_of_the_column_which_is_wrong(tmp_path: Path, column: str, value: object, hint: str) -> None:
    with pytest.raises(EvalFileError) as refused:
        load(tmp_path, json.dumps({"prompt": "hi", column: value}), "q.jsonl")
    assert hint in (refused.value.problems[0].hint or "")


def test_a_row_may_be_large_but_not_endless(tmp_path: Path) -> None:
    assert len(only_case(load(tmp_path, f"prompt\n{'x' * 1_000_000}\n")).turns[0].user_content.text) == 1_000_000
    with pytest.raises(EvalFileError) as error:
        load(tmp_path, f"prompt\nshort\n{'x' * (MAX_ROW_BYTES + 1)}\n")
    assert problems(error)[0][0] == 3


def test_rows_stream(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("prompt,reference\n" + "a question of some length,and its answer\n" * 20_000)
    tracemalloc.start()
    count = sum(1 for _ in Table(path, tmp_path).rows())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 1_000_000 < path.stat().st_size * 2


CELLS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1, max_size=20).filter(
        lambda text: text.strip() and text[0] not in "[{"
    ),
    min_size=1,
    max_size=5,
)


@given(CELLS)
@settings(max_examples=60, deadline=None)
def test_every_text_comes_out_as_csv_writes_it(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    cells = io.StringIO()
    writer = csv.writer(cells)
    writer.writerows([["prompt", "n"], *([text, number] for number, text in enumerate(texts))])
    loaded = load(tmp_path_factory.getbasetemp(), cells.getvalue())
    assert [case.turns[0].user_content.text for case in loaded.eval_set.eval_cases] == texts


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["user", "ai", "tool", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "parts", "text", "type", "messages", "tool_calls", "function", "name"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)
ROWS = st.dictionaries(
    st.sampled_from(["id", "prompt", "inputs", "reference", "expected_tools", "history", "state", "other"]), JSON
)


def outcome(folder: Path, data: bytes, name: str) -> LoadedEvalFile | EvalFileError:
    try:
        return load(folder, data, name)
    except EvalFileError as error:
        return error


@given(st.lists(ROWS, min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_any_row_is_read_or_refused_with_its_line(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]]
) -> None:
    data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    found = outcome(tmp_path_factory.getbasetemp(), data, "x.jsonl")
    if isinstance(found, EvalFileError):
        assert all(problem.line for problem in found.problems)
    else:
        assert len({case.eval_id for case in found.eval_set.eval_cases}) == len(rows)


@given(st.binary(max_size=60), st.sampled_from(["x.csv", "x.tsv", "x.jsonl"]))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes, name: str) -> None:
    found = outcome(tmp_path_factory.getbasetemp(), b"prompt,id\n" + data, name)
    assert isinstance(found, LoadedEvalFile) or found.problems


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot" / "agent.py").write_text("root_agent = None\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("ask,want\nHi,Hello\n")
    (tmp_path / "data" / "b.csv").write_text("ask,want\nBye,Ciao\n")
    return tmp_path


def configured(project: Path, evals: str) -> None:
    (project / "agent-eval.yaml").write_text(f"agent:\n  path: bot\n  evals:\n{evals}")


MAPPED = "    - path: data/*.csv\n      columns: {prompt: ask, reference: want}\n"


@pytest.mark.parametrize("selectors", [(), ("data/a.csv",)])
def test_the_configured_mapping_holds_for_files_found_and_files_named(
    project: Path, selectors: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    configured(project, MAPPED)
    found = resolve(flags={}, environ={}, cwd=project).settings
    plan = Loader(project).plan(discover_eval_files(found, selectors), 1)
    answers = {planned.key: planned.cases[0].case.turns[0].response_text for planned in plan.sets}
    assert answers == ({"data/a": "Hello"} if selectors else {"data/a": "Hello", "data/b": "Ciao"})


def test_a_path_and_a_folder_of_tables_may_stand_beside_each_other(project: Path) -> None:
    configured(project, "    - data/a.csv\n    - {path: data, columns: {prompt: ask}}\n")
    discovery = discover_eval_files(resolve(flags={}, environ={}, cwd=project).settings)
    assert [(found.path.name, found.columns and found.columns.prompt) for found in discovery.sets] == [
        ("a.csv", "ask"),
        ("b.csv", "ask"),
    ]


@pytest.mark.parametrize(
    ("evals", "line", "message", "hint"),
    [
        ("    - {path: data, columns: {promt: ask}}\n", 4, "unknown key `promt`", "did you mean `prompt`?"),
        ("    - {path: data}\n", 4, "`columns` is required", None),
        ("    - {path: data, columns: ask}\n", 4, "must be a mapping", None),
        ("    - data/a.csv\n    - {path: data, columns: {metadata: [1]}}\n", 5, "must be a string", None),
    ],
)
def test_a_wrong_mapping_is_refused_where_it_stands(
    project: Path, evals: str, line: int, message: str, hint: str | None
) -> None:
    configured(project, evals)
    with pytest.raises(ConfigError) as error:
        resolve(flags={}, environ={}, cwd=project)
    (problem,) = error.value.problems
    assert (problem.line, problem.message, problem.hint) == (line, message, hint)


def test_a_table_that_is_named_is_validated_by_its_mapping(project: Path) -> None:
    columns = {project / "data" / "a.csv": ColumnMapping(prompt="ask")}
    paths = [project / "data" / "a.csv", project / "data" / "b.csv"]
    count, found = validate_paths(paths, project, columns)
    assert count == 2
    assert [problem.path.name for problem in found] == ["b.csv"]


ROWS = [
    {"inputs": {"question": "How many?"}, "outputs": {"answer": "Two."}, "id": "e1"},
    {"inputs": {"question": "Who?"}, "outputs": {"answer": "Ada."}, "id": "e2"},
]


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_list_of_json_is_the_table_that_its_lines_are(tmp_path: Path, wrapped: bool) -> None:
    rows = [{"item": row, "sample": {"output_text": "x"}} for row in ROWS] if wrapped else ROWS
    of_list = load(tmp_path, json.dumps(rows, indent=1), "q.json")
    of_lines = load(tmp_path, "\n".join(map(json.dumps, rows)), "q.jsonl")
    assert of_list.format == of_lines.format == "table"
    assert of_list.eval_set == of_lines.eval_set
    lines = (tmp_path / "q.json").read_text().splitlines()
    assert [lines[case.line - 1].strip() for case in of_list.eval_set.eval_cases if case.line] == ["{", "{"]


def test_columns_make_a_table_of_any_list(tmp_path: Path) -> None:
    text = '[\n {"ask": "Hi", "query": "not this"}]'
    case = only_case(load(tmp_path, text, "q.json", prompt="ask"))
    assert (case.turns[0].user_content.text, case.line) == ("Hi", 2)
    with pytest.raises(EvalFileError) as refused:
        load(tmp_path, '[{"ask": "Hi"},\n 3]', "q.json", prompt="ask")
    assert problems(refused) == [(2, "this row is no JSON object")]
    with pytest.raises(EvalFileError) as refused:
        load(tmp_path, "[]", "q.json", prompt="ask")
    assert problems(refused) == [(None, "is empty")]


def test_lists_of_adk_stay_what_they_are(tmp_path: Path) -> None:
    turns = '[{"query": "Hi", "reference": "Hello", "expected_tool_use": []}]'
    cases = '[{"name": "a", "data": [{"query": "Hi", "reference": "Hello"}], "initial_session": {}}]'
    for text in (turns, cases, "[]"):
        assert load(tmp_path, text, "q.json").format == "adk_legacy"


def test_a_list_that_is_too_large_says_how_to_make_lines_of_it(tmp_path: Path) -> None:
    path = tmp_path / "q.json"
    with path.open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(EvalFileError) as refused:
        load_eval_file(path, workspace=tmp_path)
    assert "jq -c '.[]' q.json > q.jsonl" in str(refused.value.problems[0])
