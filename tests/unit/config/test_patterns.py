"""Eval files as people name them: paths, folders, globs; and naming nothing is an error."""

from __future__ import annotations

import glob
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_eval_action.config import walk
from agent_eval_action.config.types import EvalPattern, Origin
from agent_eval_action.config.walk import expand, files_below, glob_regex
from agent_eval_action.errors import EvalFileError


def named(base: Path, pattern: str) -> EvalPattern:
    return EvalPattern(pattern, Origin(base, Path("agent-eval.yaml"), 2))


def found(workspace, pattern: str, base: str = "") -> list[str]:
    return [path.relative_to(workspace.root).as_posix() for path in expand(named(workspace.root / base, pattern))]


@pytest.fixture
def tree(workspace):
    for path in ("a/x.evalset.json", "a/y.test.json", "a/deep/er/z.evalset.json", "a/other.json", "b [1]/x.test.json"):
        workspace.write(path)
    return workspace


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("a/x.evalset.json", ["a/x.evalset.json"]),
        ("./a/../a/other.json", ["a/other.json"]),
        ("a", ["a/deep/er/z.evalset.json", "a/x.evalset.json", "a/y.test.json"]),
        ("a/*.evalset.json", ["a/x.evalset.json"]),
        ("**/*.evalset.json", ["a/deep/er/z.evalset.json", "a/x.evalset.json"]),
        ("a/**/z.*", ["a/deep/er/z.evalset.json"]),
        ("a/[xy].*", ["a/x.evalset.json", "a/y.test.json"]),
        ("a/[!x].*", ["a/y.test.json"]),
        ("?/other.json", ["a/other.json"]),
        ("b [1]/x.test.json", ["b [1]/x.test.json"]),
        ("b [[]1]/*.json", ["b [1]/x.test.json"]),
    ],
)
def test_paths_folders_and_globs(tree, pattern, files):
    assert found(tree, pattern) == files


def test_patterns_start_from_where_they_are_written(tree):
    assert found(tree, "*.test.json", base="a") == ["a/y.test.json"]
    assert found(tree, "../b*/*.json", base="a") == ["b [1]/x.test.json"]
    assert found(tree, str(tree.root / "a" / "y.*")) == ["a/y.test.json"]


@pytest.mark.parametrize(
    ("pattern", "message", "hint"),
    [
        ("a/x.evalsets.json", "there is no such eval file", "did you mean `x.evalset.json`?"),
        ("nowhere/x.json", "there is no such eval file", None),
        ("a/*.yaml", "matches no file", "paths start from"),
        ("nowhere/**", "matches no file", "paths start from"),
        ("empty", "no eval file in this folder", "*.evalset.json or *.test.json"),
        ("a/[z-a]", "is not a glob", "[a-z] holds a range"),
    ],
)
def test_naming_nothing_is_refused(tree, pattern, message, hint):
    (tree.root / "empty").mkdir()
    with pytest.raises(EvalFileError) as caught:
        expand(named(tree.root, pattern))
    (problem,) = caught.value.problems
    assert (problem.message, problem.line) == (message, 2)
    assert (problem.hint or "").startswith(hint or "")


def test_a_search_without_end_is_refused(tree, monkeypatch):
    monkeypatch.setattr(walk, "files_below", lambda folder: files_below(folder, max_entries=1))
    with pytest.raises(EvalFileError, match="files to look through"):
        expand(named(tree.root, "**/*.json"))


NAMES = st.text("ab.[]!^\\-", min_size=1, max_size=4).filter(lambda name: name not in (".", "..") and name[0] != ".")
PART = st.lists(st.sampled_from(["a", "b", ".", "*", "?", "[ab]", "[!a]", "**"]), min_size=1, max_size=3).map("".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(st.lists(NAMES, min_size=1, max_size=3), max_size=6),
    pattern=st.lists(
        PART.filter(lambda p: "**" not in p and p not in (".", "..")) | st.just("**"), min_size=1, max_size=3
    ),
)
def test_globs_match_what_pythons_own_match(tmp_path_factory, files, pattern):
    if pattern[-1] == "**":
        pattern = [*pattern, "*"]
    root = tmp_path_factory.mktemp("glob")
    paths = {"/".join(parts) for parts in files}
    for path in paths:
        file = root / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("")
        except (FileExistsError, IsADirectoryError, NotADirectoryError):
            continue
    there = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    text = "/".join(pattern)
    matched = glob.glob(text, root_dir=root, recursive=True)  # noqa: PTH207 - the oracle
    expected = {path for path in matched if (root / path).is_file()}
    regex = glob_regex(text)
    hidden = {path for path in there if any(part.startswith(".") for part in path.split("/"))}
    assert {path for path in there if regex.fullmatch(path)} - hidden == expected - hidden
