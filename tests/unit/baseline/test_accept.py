"""Accepted changes: read with their lines, matched exactly, spent once main shows them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_eval_action.baseline.accepted import KnownNames, append, parse, pending, read, unknown
from agent_eval_action.baseline.records import record_of
from agent_eval_action.errors import ConfigError
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.history import Accepted, Quarantine
from support.results import run, simple

TEXT = """\
# why we may
- case: book_flight
  criterion: tool_trajectory_avg_score
  reason: the tool was renamed
- {case: smalltalk, reason: "it may be brief now"}
"""


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / ".agent-eval"
    folder.mkdir()
    return folder / "accept.yaml"


def test_entries_have_their_words_and_lines(path, tmp_path):
    path.write_text(TEXT)
    found = read(path, workspace=tmp_path)
    first, second = found
    assert list(found.values()) == [2, 5]
    assert first.case == "book_flight"
    assert first.reason == "the tool was renamed"
    assert second.criterion is None
    assert first.id != second.id


def test_no_file_accepts_nothing(path, tmp_path):
    assert read(path, workspace=tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("case: a", "must be a list"),
        ("- a", "accept.yaml:1: must be a mapping"),
        ("- case: a", "accept.yaml:1: needs a reason"),
        ("- reason: x", "accept.yaml:1: needs a case"),
        ("- case: a\n  reason: x\n  criterium: y", "did you mean `criterion`?"),
        ("- case: 7\n  reason: x", "put it in quotes"),
        ("- case: a\n  reason: ' '", "accept.yaml:2: reason must be text"),
        ("- case: a\n  reason: ", "accept.yaml:2: reason must be text"),
        (f"- case: a\n  reason: {'x' * 3000}", "longer than 2000"),
        ("- case: a\n  reason: x\n  owner: jane", "accept.yaml:1: needs an until"),
        ("- case: a\n  reason: x\n  until: 2027-01-31", "accept.yaml:1: needs an owner"),
        ("- case: a\n  reason: x\n  owner: jane\n  until: tomorrow", "accept.yaml:4: until must be a day: YYYY-MM-DD"),
        ("- case: a\n  reason: x\n  owner: jane\n  until: 2027-02-30", "accept.yaml:4: until is no day"),
        ("- case: a\n  reason: x\n  owner: jane\n  until: 20270131", "accept.yaml:4: until must be text"),
        ("- case: a\n  reason: x\n  owner: jane\n  until: 2027-01-31T12:00", "must be a day"),
        ("- case: [", "is not valid YAML"),
        ("- !!python/object:os.system x", "YAML tag"),
    ],
)
def test_what_is_wrong_is_reported_with_its_line(path, tmp_path, monkeypatch, text, said):
    monkeypatch.chdir(path.parent)
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read(path, workspace=tmp_path)
    assert said in str(caught.value)


def test_every_problem_at_once():
    with pytest.raises(ConfigError) as caught:
        parse("- case: a\n- reason: b\n- 7\n")
    assert len(caught.value.problems) == 3


def test_a_link_out_of_the_workspace_is_refused(path, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside.yaml"
    outside.write_text(TEXT)
    path.symlink_to(outside)
    with pytest.raises(ConfigError, match="cannot be read"):
        read(path, workspace=tmp_path)


def test_an_unknown_name_is_a_warning_with_a_suggestion():
    names = KnownNames(case={"book_flight"}, criterion={"tool_trajectory_avg_score"})
    found = parse("- case: book_fligth\n  criterion: tool_trajectory_avg_score\n  reason: x\n")
    (problem,) = unknown(found, names)
    assert (problem.severity, problem.line, problem.hint) == ("warning", 1, "did you mean `book_flight`?")
    assert unknown(parse(TEXT.replace("smalltalk", "book_flight")), names) == ()


def covers(text, case="a", criterion="q", agent="bot", eval_set="set"):
    return next(iter(parse(text))).covers(CaseKey(agent, eval_set, case), criterion)


def test_names_match_whole_and_what_is_not_named_matches_all():
    assert covers("- {case: a, reason: r}")
    assert not covers("- {case: a, reason: r}", case="ab")
    assert not covers("- {case: 'a*', reason: r}", case="ab")
    assert not covers("- {case: a, criterion: q, reason: r}", criterion="other")
    assert not covers("- {case: a, agent: x, reason: r}")
    assert not covers("- {case: a, eval_set: x, reason: r}")


def test_an_entry_is_spent_once_the_newest_record_shows_it():
    entries = list(parse(TEXT))
    shown = record_of(run(simple("a", 1.0)), accepted=entries[:1])
    before = record_of(run(simple("a", 1.0)))
    assert len(pending(entries, ())) == 2
    assert [one.case for one in pending(entries, (shown, before))] == ["smalltalk"]
    assert len(pending(entries, (before, shown))) == 2, "removed and written again, it accepts again"


def test_an_entry_is_added_and_the_rest_stays_byte_for_byte(path, tmp_path):
    path.write_text(TEXT.rstrip("\n"))
    append(path, [{"case": 'odd: "name" #1\n', "reason": "ja, ü"}], workspace=tmp_path)
    assert path.read_text().startswith(TEXT)
    assert list(read(path))[2].case == 'odd: "name" #1\n'
    text = path.read_text()
    known = {"case": "smalltalk", "reason": "it may be brief now"}
    assert append(path, [known], workspace=tmp_path) == ()
    assert path.read_text() == text, "what is there already is not added again"
    new = {"case": "smalltalk", "reason": "another"}
    assert [one.reason for one in append(path, [known, new, new], workspace=tmp_path)] == ["another"]


def test_a_first_entry_makes_the_file(path, tmp_path):
    append(path, [{"case": "a", "criterion": "q", "reason": "r"}], workspace=tmp_path)
    assert [entry.criterion for entry in read(path, workspace=tmp_path)] == ["q"]
    assert "!accept.yaml" in (path.parent / ".gitignore").read_text()


def test_a_file_in_another_style_is_not_guessed_at(path, tmp_path):
    path.write_text('[{"case": "a", "reason": "r"}]')
    with pytest.raises(ConfigError, match="plain list"):
        append(path, [{"case": "b", "reason": "r"}], workspace=tmp_path)
    assert path.read_text() == '[{"case": "a", "reason": "r"}]'


def test_the_example_of_the_page_is_what_the_command_would_read():
    page = (Path(__file__).resolve().parents[3] / "docs" / "baseline.md").read_text()
    blocks = re.findall(r"^```yml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert [type(entry) for block in blocks for entry in parse(block)] == [Accepted, Quarantine]


def test_a_quarantine_is_kept_beside_accepted_changes_and_accepts_none(path, tmp_path):
    path.write_text(TEXT)
    words = {"case": "x", "reason": "flaky", "owner": "jane", "until": "2027-01-31"}
    (added,) = append(path, [words], workspace=tmp_path)
    assert isinstance(added, Quarantine)
    assert path.read_text().startswith(TEXT)
    found = read(path, workspace=tmp_path)
    assert list(found)[-1] == added
    assert added not in pending(found, ())
    assert append(path, [words], workspace=tmp_path) == ()
    assert append(path, [{**words, "until": "2027-02-28"}], workspace=tmp_path)


def test_an_entry_that_quarantines_nothing_is_named():
    (problem,) = unknown(parse("- {case: b, reason: x, owner: jane, until: 2027-01-31}"), KnownNames(case={"a"}))
    assert problem.message == "quarantines nothing: there is no case 'b'"
