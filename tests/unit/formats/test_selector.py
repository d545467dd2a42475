"""``file.json:case_a,case_b``: what is selected, and what is said when nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.errors import EvalFileError, UsageError
from agent_eval_action.formats import Selector, match_cases, parse_selector, select_cases
from agent_eval_action.results.evalset import EvalCase, EvalSet

FILE = Path("s.evalset.json")


def eval_set(*ids: str) -> EvalSet:
    return EvalSet(eval_set_id="s", eval_cases=tuple(EvalCase(eval_id=one, conversation=()) for one in ids))


def ids(chosen: EvalSet) -> list[str]:
    return [case.eval_id for case in chosen.eval_cases]


@pytest.mark.parametrize(
    ("text", "there", "expected"),
    [
        ("a.json", ["a.json"], Selector(Path("a.json"))),
        ("a.json", [], Selector(Path("a.json"))),
        ("a.json:x", ["a.json"], Selector(Path("a.json"), ("x",))),
        ("a.json:x,y", ["a.json"], Selector(Path("a.json"), ("x", "y"))),
        ("a.json:", ["a.json"], Selector(Path("a.json"))),
        ("a.json:,x,, ", ["a.json"], Selector(Path("a.json"), ("x",))),
        ("a.json:x:y", ["a.json"], Selector(Path("a.json"), ("x:y",))),
        ("a.json:d/x.json", ["a.json"], Selector(Path("a.json"), ("d/x.json",))),
        ('a.json:"x,y",z', ["a.json"], Selector(Path("a.json"), ("x,y", "z"))),
        ('a.json:\'x:y\' , "q\\"r\\\\"', ["a.json"], Selector(Path("a.json"), ("x:y", 'q"r\\'))),
        ("a:b.json", ["a:b.json"], Selector(Path("a:b.json"))),
        ("a:b.json", ["a:b.json", "a"], Selector(Path("a:b.json"))),
        ("a:b.json:x", ["a:b.json", "a"], Selector(Path("a:b.json"), ("x",))),
        ("a:b.json:x", ["a"], Selector(Path("a"), ("b.json:x",))),
        ("a:b.json:x", [], Selector(Path("a:b.json"), ("x",))),
        ("evals:x", ["evals"], Selector(Path("evals"), ("x",))),
        ("nothing:x", [], Selector(Path("nothing"), ("x",))),
    ],
)
def test_parse(text, there, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in there:
        Path(name).touch()
    assert parse_selector(text) == expected


@pytest.mark.parametrize("text", ["", "  ", ":x", 'a.json:"x', "a.json:'x'y"])
def test_what_cannot_be_meant_is_refused(text):
    with pytest.raises(UsageError):
        parse_selector(text)


@given(chosen=st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4, unique=True))
def test_any_ids_can_be_quoted(chosen):
    quoted = ",".join('"' + one.replace("\\", "\\\\").replace('"', '\\"') + '"' for one in chosen)
    assert parse_selector(f"a.json:{quoted}").case_ids == tuple(chosen)


@pytest.mark.parametrize(
    ("known", "wanted", "expected"),
    [
        (["a", "b", "c"], [], ["a", "b", "c"]),
        (["a", "b", "c"], ["c", "a"], ["a", "c"]),
        (["a,b", "a", "b"], ["a", "b"], ["a,b"]),
        (["a,b", "c"], ["c", "a", "b"], ["a,b", "c"]),
        (["a,b", "c", "d"], ["a,b", "c"], ["a,b", "c"]),
        (["a", "b"], [" a ", "b"], ["a", "b"]),
        ([" a"], [" a"], [" a"]),
    ],
)
def test_select_takes_exact_ids_first_and_keeps_file_order(known, wanted, expected):
    assert ids(select_cases(eval_set(*known), wanted, FILE)) == expected


def test_a_case_id_is_no_path_however_long_it_is():
    assert parse_selector(f"a.json:{'z' * 5_000}:x").case_ids == (f"{'z' * 5_000}:x",)


def test_unknown_and_repeated_ids_are_errors():
    with pytest.raises(EvalFileError) as unknown:
        select_cases(eval_set("roll_die", "prime"), ["roll_dei"], FILE)
    assert "roll_dei" in unknown.value.message
    assert unknown.value.hint == "did you mean `roll_die`?"
    with pytest.raises(EvalFileError, match="more than once"):
        select_cases(eval_set("a", "b"), ["a", "b", "a"], FILE)
    with pytest.raises(EvalFileError) as many:
        select_cases(eval_set(*(f"c{one:02}" for one in range(30))), ["zzzzz"], FILE)
    assert "and 20 more" in (many.value.hint or "")


def test_match_takes_the_exact_id_first():
    assert ids(match_cases(eval_set("a1", "a2", "b"), "a*")) == ["a1", "a2"]
    assert ids(match_cases(eval_set("a*", "a2"), "a*")) == ["a*"]
    assert ids(match_cases(eval_set("A", "a"), "[a]")) == ["a"]
    assert ids(match_cases(eval_set("a"), "z*")) == []


@pytest.mark.parametrize(
    ("known", "pattern", "expected"),
    [
        (["x:y,z", "x:y", "z"], "x:y,z", ["x:y,z"]),
        (["x:y,z", "x:y", "z"], "x:*,z", ["x:y,z"]),
        (["a1", "a2", "b", "c"], "b, a*,", ["a1", "a2", "b"]),
        (["a", "b"], ",", []),
    ],
)
def test_a_pattern_is_split_at_its_commas_where_no_id_has_them(known, pattern, expected):
    assert ids(match_cases(eval_set(*known), pattern)) == expected


def test_selecting_keeps_lines():
    whole = EvalSet(eval_set_id="s", eval_cases=(EvalCase(eval_id="a", conversation=()).at_line(7),))
    assert select_cases(whole, ["a"], FILE).eval_cases[0].line == 7
