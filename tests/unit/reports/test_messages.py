"""The sentences of findings: one for every code, and those of results of an older schema version."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.errors import ResultsError
from agent_eval_action.reports import REPORTS, ReportInput, results_json
from agent_eval_action.reports.formatting import Name, Prose, compose, joined
from agent_eval_action.reports.messages import _WRITERS, Messages
from agent_eval_action.results.findings import Finding, FindingCode, Subject
from support.messages import headline, pair_sentence, sentences, text_finding

SAMPLES = Path(__file__).with_name("samples")
VERSION_1 = SAMPLES / "results_v1.json"
SENTENCES = [json.loads(line) for line in (SAMPLES / "sentences.jsonl").read_text().splitlines()]
"""Findings as the gate makes them, whose tests speak of codes and values alone, each with its sentence."""
DOCS = Path(__file__).resolve().parents[3] / "docs" / "findings.md"
SCORES = {"n": 5, "mean": 0.4, "passed": 2}


def test_every_code_has_a_sentence_and_a_row_in_the_docs() -> None:
    assert set(_WRITERS) == set(FindingCode)
    first_cells = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \|", DOCS.read_text(), re.MULTILINE)
    documented = {code for cell in first_cells for code in re.findall(r"`([a-z_]+)`", cell)}
    assert documented == {code.value for code in FindingCode}


@pytest.mark.parametrize("sample", SENTENCES, ids=lambda sample: sample["finding"]["code"])
def test_a_finding_is_said_in_one_sentence(sample: Any) -> None:
    assert str(Messages().sentence(Finding.model_validate(sample["finding"]))) == sample["sentence"]


def test_a_case_that_shares_its_name_is_named_with_agent_and_eval_set() -> None:
    found = Finding(
        code=FindingCode.NO_ANSWER,
        severity="inconclusive",
        subject=Subject(agent="bot", eval_set="one", case="a"),
        data={"errors": 1, "attempts": 1, "error": "timeout"},
    )
    assert str(Messages().sentence(found)) == "`a` could not be measured: timeout"
    assert str(Messages(frozenset("a")).sentence(found)) == "`bot / one / a` could not be measured: timeout"


@pytest.mark.parametrize(
    ("binary", "words"),
    [
        (True, "passed 2 of 5 times on main and 2 of 5 here; the base commit's agent passed 2 of 5 just now"),
        (False, "was 0.40 over 5 runs of main and 0.40 over 5 here; the base commit's agent had 0.40 just now"),
    ],
)
def test_a_suspect_has_the_numbers_of_main_of_this_change_and_of_the_control(binary: bool, words: str) -> None:
    data = {"main": SCORES, "here": SCORES, "control": SCORES, "rerun": True, "binary": binary, "interval": None}
    subject = Subject(agent="bot", eval_set="one", case="a", criterion="quality")
    found = Finding(code=FindingCode.BROKEN_ON_MAIN, severity="advisory", subject=subject, data=data)
    assert str(Messages().sentence(found)) == f"`a › quality` {words}: already broken on main"


def test_values_that_are_missing_are_named_and_no_crash() -> None:
    found = Finding(code=FindingCode.MEAN_WORSE, severity="blocks", data={"drop": "much"})
    with pytest.raises(ResultsError, match="the finding mean_worse does not have the values it needs"):
        Messages().sentence(found)


def test_names_are_marked_and_text_is_not_taken_for_a_name() -> None:
    prose = compose("{name} said `x`", name=Name("a`b"))
    assert prose.render(lambda text: f"[{text}]", lambda name: f"<{name}>") == "<a`b>[ said `x`]"
    assert joined(["a ", Prose.join(Name("b")), "", " c", " d"], "").parts == ("a ", "b", " c d")
    assert prose.cleaned(6).plain == "a`b s…"


def test_results_of_version_1_keep_their_sentences() -> None:
    old = json.loads(VERSION_1.read_text())["decision"]
    decision = results_json.read(VERSION_1).decision
    assert decision is not None
    assert headline(decision) == old["reason"]
    assert sentences(decision) == [finding["reason"] for finding in old["findings"]]
    assert [(found.severity, found.subject.case, found.subject.criterion) for found in decision.findings] == [
        (finding["effect"], finding["case"], finding["criterion"]) for finding in old["findings"]
    ]
    assert [pair_sentence(pair) for pair in decision.pairs] == [pair["reason"] for pair in old["pairs"]]
    comment = REPORTS["markdown"](ReportInput(results_json.read(VERSION_1)), None)
    assert "2 of 7 cases got worse" in comment


def test_a_sentence_of_an_older_version_is_distinguished_from_another() -> None:
    assert text_finding("blocks", "one").topic != text_finding("blocks", "other").topic
