"""Files from a workspace: hostile ones end in one problem with a line; lines of values are right."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.diagnostics import reader, yaml_loader
from agent_eval_action.diagnostics.reader import Source, did_you_mean, shorten
from agent_eval_action.diagnostics.suggestions import closest, json_path_text
from agent_eval_action.errors import ConfigError, EvalFileError, Problem


def problem_of(path: Path, workspace: Path | None = None) -> Problem:
    with pytest.raises(EvalFileError) as caught:
        Source.read(path, workspace=workspace, error=EvalFileError)
    (problem,) = caught.value.problems
    assert problem.path == path
    return problem


def refused(tmp_path: Path, content: str | bytes, name: str = "x.json") -> Problem:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return problem_of(path, tmp_path)


# --- what a person did to the JSON


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('{\n"a": 1, // why\n"b": 2}', 2, "comments are not allowed"),
        ('{\n"a": 1 /* why */}', 2, "comments are not allowed"),
        ("# why\n{}", 1, "comments are not allowed"),
        ('{\n"a": 1,\n\n}', 2, "trailing comma"),
        ("[\n1,\n]", 2, "trailing comma"),
        ('{"a": [1,\n ...]}', 2, "left out"),
        ("{\n'a': 1}", 2, "double quotes"),
        ('{"a":\n True}', 2, "`True` is not JSON"),
        ('{\n<<<<<<< HEAD\n"a": 1}', 2, "merge conflict"),
        ('{"a": [1,\n2', 2, "ends in the middle"),
        ('{"a":\n"b', 2, "not closed"),
        ('{"a":\n"b\nc"}', 2, "control character"),
        ("{}\n{}", 2, "second value"),
        ('{"a" 1}', 1, "expecting ':' delimiter"),
        ('["\\x"]', 1, "escape"),
        ('["\\u12"]', 1, "escape"),
    ],
)
def test_invalid_json_is_explained_with_its_line(tmp_path, text, line, said):
    problem = refused(tmp_path, text)
    assert said in problem.message
    assert problem.line == line


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        (b"", None, "is empty"),
        (b" \n ", None, "is empty"),
        (b"\xef\xbb\xbf", None, "is empty"),
        ('{"a": 1}'.encode("utf-16"), 1, "UTF-16"),
        ('{"a": 1}'.encode("utf-16-le"), 1, "NUL"),
        ('{"a": 1}'.encode("utf-32"), 1, "UTF-16 or UTF-32"),
        (b'{\n"a": "\xff"}', 2, "is not UTF-8"),
        (b'\xef\xbb\xbf{\n\n"a": "\xc3"}', 3, "is not UTF-8"),
        (b'{\n"a": "\x00"}', 2, "NUL"),
        ('{"a":\n"\ud800"}', 2, "is not UTF-8"),
        ('{"a":\n"\\ud800"}', 2, "half a surrogate pair"),
        ('{"a":\n"\\udc00\\ud800"}', 2, "half a surrogate pair"),
        ('{"\\ud800":\n1}', 1, "half a surrogate pair"),
        ("[" * 100_000, 1, "nested"),
        ("[\n" * 250 + "]" * 250, 202, "nested more than 200 levels"),
        ('{"a":' * 900 + "1" + "}" * 900, 1, "nested more than 200 levels"),
        ('{"a":\n' + "9" * 5000 + "}", 2, "4300 digits"),
    ],
)
def test_hostile_content_is_refused(tmp_path, content, line, said):
    problem = refused(tmp_path, content)
    assert said in problem.message
    assert problem.line == line


def test_two_hundred_levels_are_read(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("[" * 200 + "]" * 200)
    assert Source.read(path, workspace=tmp_path, error=EvalFileError).value


@pytest.mark.parametrize(
    "text", ['["\\ud83d\\ude00"]', '["\u202eabc\u0000"]'.replace("\u0000", "\\u0000"), "[1e999]", "[NaN]"]
)
def test_strange_values_that_adk_reads_are_read(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    assert Source.read(path, workspace=tmp_path, error=EvalFileError).value


def test_byte_order_mark_and_any_line_end_are_read(tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(b'\xef\xbb\xbf{"a":\r\n[1,\r2,\n3]}')
    source = Source.read(path, workspace=tmp_path, error=EvalFileError)
    assert source.value == {"a": [1, 2, 3]}
    assert [source.line(("a", index)) for index in range(3)] == [2, 3, 4]


def test_keys_written_twice_are_warned_about_where_they_are(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"a": 1,\n"b": [0, {"c": 1,\n"c": 2, "d": "{"}],\n"\\u0061": 3, "e": {"c": 1}}')
    source = Source.read(path, workspace=tmp_path, error=EvalFileError)
    assert source.value["a"] == 3
    assert [(one.line, one.json_path, one.severity) for one in source.warnings] == [
        (3, "$.b[1].c", "warning"),
        (4, "$.a", "warning"),
    ]


def test_warnings_about_keys_written_twice_are_bounded(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("[" + ",".join(['{"a": 1, "a": 2}'] * 1000) + "]")
    assert len(Source.read(path, workspace=tmp_path, error=EvalFileError).warnings) == 20


# --- what is no file of the workspace


def test_links_inside_the_workspace_are_followed(tmp_path):
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("real.json")
    assert Source.read(tmp_path / "link.json", workspace=tmp_path, error=EvalFileError).value == {}


@pytest.mark.parametrize("where", ["file", "folder", "chain"])
def test_no_link_leads_out_of_the_workspace(tmp_path, where):
    inside, outside = tmp_path / "inside", tmp_path / "inside-not"
    inside.mkdir()
    outside.mkdir()
    (outside / "x.json").write_text('{"secret": 1}')
    if where == "folder":
        (inside / "folder").symlink_to(outside)
        path = inside / "folder" / "x.json"
    elif where == "chain":
        (inside / "one.json").symlink_to("two.json")
        (inside / "two.json").symlink_to("../inside-not/x.json")
        path = inside / "one.json"
    else:
        path = inside / "x.json"
        path.symlink_to(outside / "x.json")
    problem = problem_of(path, inside)
    assert "outside the workspace" in problem.message
    assert "secret" not in str(problem)


@pytest.mark.parametrize("place", [".git/config", "sub/.git/config", ".GIT/x"])
def test_a_link_into_gits_own_folder_is_not_followed(tmp_path, place):
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_text("{}")
    (tmp_path / "x.json").symlink_to(place)
    assert "git's own folder" in problem_of(tmp_path / "x.json", tmp_path).message


def test_a_path_out_of_the_workspace_is_refused(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "x.json").write_text("{}")
    assert "outside the workspace" in problem_of(tmp_path / "inside" / ".." / "x.json", tmp_path / "inside").message


def test_the_workspace_may_itself_be_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x.json").write_text("{}")
    (tmp_path / "link").symlink_to("real")
    for path in ("real/x.json", "link/x.json"):
        assert Source.read(tmp_path / path, workspace=tmp_path / "link", error=EvalFileError).value == {}


def test_a_link_to_itself_is_refused(tmp_path):
    (tmp_path / "a.json").symlink_to("b.json")
    (tmp_path / "b.json").symlink_to("a.json")
    assert "leads to itself" in problem_of(tmp_path / "a.json", tmp_path).message


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "fifo.json")
    (tmp_path / "folder.json").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket.json"))
        assert "not a regular file" in problem_of(tmp_path / "fifo.json", tmp_path).message
        assert "a directory" in problem_of(tmp_path / "folder.json", tmp_path).message
        assert "not a regular file" in problem_of(tmp_path / "socket.json", tmp_path).message
    assert "a device" in problem_of(Path("/dev/zero")).message
    assert "does not exist" in problem_of(tmp_path / "none.json", tmp_path).message
    assert "does not exist" in problem_of(tmp_path / "dangling" / "none.json", tmp_path).message
    assert "NUL" in problem_of(Path("a\0b.json"), tmp_path).message
    assert "too long" in problem_of(tmp_path / ("x" * 300), tmp_path).message


def test_a_file_without_permission_is_refused(tmp_path):
    """As a user without rights: root may read everything."""
    path = tmp_path / "x.json"
    path.write_text("{}")
    path.chmod(0)
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from agent_eval_action.errors import EvalFileError\n"
        "from agent_eval_action.diagnostics.reader import Source\n"
        "os.chdir(sys.argv[1])\n"
        "os.getuid() or os.setuid(65534)\n"
        "try:\n    Source.read(Path('x.json'), workspace=None, error=EvalFileError)\n"
        "except EvalFileError as error:\n    print(error)\n"
    )
    for folder in (tmp_path, *tmp_path.parents[:-1]):
        if folder.owner() == "root" and folder != Path("/tmp"):  # noqa: S108 - pytest's own folders below it
            folder.chmod(folder.stat().st_mode | 0o055)
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "permission denied" in done.stdout


def test_files_beyond_the_limit_are_refused_unread(tmp_path):
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        file.truncate(reader.MAX_JSON_BYTES + 1)  # sparse: takes no room
    problem = problem_of(path, tmp_path)
    assert "larger than 64 MB" in problem.message
    with (tmp_path / "x.yaml").open("wb") as file:
        file.truncate(reader.MAX_YAML_BYTES + 1)
    assert "larger than 1 MB" in problem_of(tmp_path / "x.yaml", tmp_path).message


def test_the_error_class_is_the_callers(tmp_path):
    with pytest.raises(ConfigError):
        Source.read(tmp_path / "none.yaml", workspace=tmp_path, error=ConfigError)


# --- YAML


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: 1\na: 2\n", 2, "a key twice"),
        ("a: &x [*x]\n", 1, "contains itself"),
        ("b: 1\na: !!python/object/apply:os.system [id]\n", 2, "YAML tag"),
        ("a: !!binary YQ==\n", 1, "YAML tag"),
        ("a: [\n", 2, "not valid YAML"),
        ("a: b: c\n", 1, "not valid YAML"),
        ("? [a]\n: 1\n", 1, "not a plain word"),
        ("--- 1\n--- 2\n", 2, "not valid YAML"),
        ("<<: 3\n", 1, "merges mappings only"),
        ("a: !!int x\n", 1, "not what its tag says"),
        ("# nothing\n", None, "is empty"),
        ("a: \x01\n", None, "not valid YAML"),
        ("[" * 5000, None, "nested too deeply"),
        ("[" * 250 + "]" * 250, None, "nested"),
        ("a: *nowhere\n", 1, "not valid YAML"),
    ],
)
def test_hostile_yaml_is_refused(tmp_path, text, line, said):
    problem = refused(tmp_path, text, "x.yaml")
    assert said in problem.message
    assert line is None or problem.line == line


def test_alias_bombs_are_refused_without_being_built(tmp_path):
    letters = "abcdefghij"
    rows = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]" for old, new in pairwise(letters)]
    assert "aliases written out" in refused(tmp_path, "\n".join(rows), "x.yml").message


def test_yaml_values_and_lines(tmp_path):
    text = "base: &base {x: 1, y: 2}\nuse:\n  <<: *base\n  y: 3\n1: [yes, 2024-01-01, true, null, 1.5]\n"
    source = Source.parse(text, path=tmp_path / "x.yaml", error=ConfigError)
    assert source.value == {
        "base": {"x": 1, "y": 2},
        "use": {"x": 1, "y": 3},
        "1": ["yes", "2024-01-01", True, None, 1.5],
    }
    late = Source.parse("a: &a {x: 1}\nb: {x: 2, <<: *a}\n", path=tmp_path / "x.yaml", error=ConfigError)
    assert late.value["b"] == {"x": 2}
    assert source.line(("use", "y")) == 4
    assert source.line(("use", "x")) == 1
    assert source.line(("1", 4)) == 5
    assert source.line(("1", 5)) is None
    assert source.line(("use", "x", "deeper")) is None
    assert yaml_loader.MAX_NODES > 1000


# --- lines


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def every_place(value, at=()):
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from every_place(item, (*at, key))


@given(value=json_values, indent=st.sampled_from([None, 0, 3]))
def test_the_line_of_every_value_is_where_it_begins(value, indent):
    """Each value is replaced by a mark in turn; the line of the mark is the line we say."""
    text = json.dumps(value, indent=indent)
    source = Source.parse(text, path=Path("x.json"), error=EvalFileError)
    for at in every_place(value):
        marked = json.loads(text)
        if at:
            inside = marked
            for step in at[:-1]:
                inside = inside[step]
            inside[at[-1]] = "@the mark@"
        else:
            marked = "@the mark@"
        before = json.dumps(marked, indent=indent).split('"@the mark@"')[0]
        assert source.line(at) == before.count("\n") + 1
        assert source.line((*at, "not there", 3)) is None
        assert source.nearest_line((*at, "not there", 3)) == source.line(at)


# --- words


def test_json_paths_read_like_code():
    assert json_path_text(("eval_cases", 3, "x y", 'a"b', "k-1")) == '$.eval_cases[3]["x y"]["a\\"b"].k-1'
    assert json_path_text(()) == "$"


@pytest.mark.parametrize("value", ["x" * 10_000_000, ["ab"] * 5_000_000, {"k" * 200: 1}, "\n\t" * 50])
def test_values_are_shortened_to_one_line(value):
    text = shorten(value)
    assert len(text) <= 80
    assert "\n" not in text


def test_did_you_mean():
    assert did_you_mean("eval_ids", ["eval_id", "conversation"]) == "did you mean `eval_id`?"
    assert did_you_mean("EVALID", ["eval_id"]) == "did you mean `eval_id`?"
    assert did_you_mean("zzz", ["eval_id"]) is None
    assert did_you_mean("", ["eval_id"]) is None
    assert did_you_mean("x" * 1_000_000, ["eval_id"]) is None
    assert closest("converstaion", ["eval_id", "conversation"]) == "conversation"
