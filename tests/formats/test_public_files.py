"""Every public eval file of the corpus: what google-adk 2.13 loads, we load with the same meaning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.errors import EvalFileError
from agent_eval_action.formats import case_digest, load_eval_file
from agent_eval_action.results.evalset import BUILT_IN_PERSONAS, ReplayCase
from support.eval_files import dump_eval_set

FEWEST_FILES = 100
FEWEST_LOADED = 80

# Refused by google-adk and read here, because what is meant is plain.
READ_ALTHOUGH_REFUSED = {
    "google__adk-samples@d85af31f/agents/travel-concierge/eval/data/intrip.test.json",
    "google__adk-samples@d85af31f/agents/travel-concierge/eval/data/pretrip.test.json",
}

SESSIONS = {"ADK 2.x recorded-events test", "session dump (id/app_name/state/events)"}
# Refused by google-adk and of another ecosystem: the format that reads them.
READ_AS = {
    "agents-cli EvaluationDataset (eval_case_id/prompt/agent_data)": "agents_cli",
    "evalset camelCase (trpc-agent-go dialect)": "trpc",
}

# Of the families that are no eval files: how the refusal names them.
NAMED: dict[str, str] = {
    "rust nonstandard (single-case object)": "adk-rust prompt-optimizer case",
    "session dump (id/app_name/state/events)": "initial session",
    "session state seed": "initial session",
    "fragment: one EvalCase": "one eval case without its set",
    "fragment: one agents-cli case": "one case of an agents-cli dataset",
    "nonstandard (test_cases)": "in no schema of ADK",
    "nonstandard/other": "without its case and set",
}


@pytest.fixture(scope="module")
def entries(corpus: Path) -> list[dict[str, Any]]:
    found = [
        entry for entry in json.loads((corpus / "INDEX.json").read_text()) if not entry["fam"].startswith("config")
    ]
    assert len(found) >= FEWEST_FILES
    return found


def load(path: Path, corpus: Path) -> Any:
    try:
        return load_eval_file(path, workspace=corpus)
    except EvalFileError as error:
        return error


def comparable(eval_set: Any) -> Any:
    """Without what a loader of the list schemas makes up: ids, times, and an empty text for no reference."""
    dumped = dump_eval_set(eval_set)
    for case in dumped["eval_cases"]:
        case["creation_timestamp"] = 0
        for turn in case["conversation"] or ():
            turn["invocation_id"], turn["creation_timestamp"] = "", 0
            if not any(part["text"] for part in (turn["final_response"] or {}).get("parts") or ()):
                turn["final_response"] = None
    return dumped["eval_cases"]


def with_persona_ids(eval_set: Any) -> Any:
    """ADK writes the built-in persona out in full where the file has its id."""
    dumped = dump_eval_set(eval_set)
    for case in dumped["eval_cases"]:
        persona = (case["conversation_scenario"] or {}).get("user_persona")
        if isinstance(persona, dict) and persona["id"] in BUILT_IN_PERSONAS:
            case["conversation_scenario"]["user_persona"] = persona["id"]
    return dumped


def test_what_adk_loads_is_loaded_and_means_the_same(entries, corpus, adk_loaders, tmp_path):
    seen = 0
    for entry in entries:
        path = corpus / entry["local"]
        for adk_set in adk_loaders.loaded(path):
            seen += 1
            ours = load(path, corpus)
            assert not isinstance(ours, EvalFileError), ours
            written = tmp_path / "adk.evalset.json"
            written.write_text(json.dumps(adk_set))
            theirs = load(written, tmp_path)
            assert not isinstance(theirs, EvalFileError), theirs
            if ours.format == "adk":
                assert with_persona_ids(ours.eval_set) == with_persona_ids(theirs.eval_set)
            else:
                renamed = theirs.eval_set.eval_cases[0].eval_id == str(path)  # a list of turns is named by its path
                cases = comparable(theirs.eval_set)
                if renamed:
                    cases[0]["eval_id"] = ours.eval_set.eval_cases[0].eval_id
                assert comparable(ours.eval_set) == cases
    assert seen >= FEWEST_LOADED


def test_index_agrees_with_the_loaders(entries, corpus, adk_loaders):
    """The corpus says what ADK does; were it wrong, the test above would prove less than it seems to."""
    for entry in entries:
        if entry["adkflag"] == "ok":
            assert len(adk_loaders.loaded(corpus / entry["local"])) == 2, entry["local"]


def test_what_adk_refuses_is_refused_with_place_and_reason_or_read_on_purpose(entries, corpus):
    for entry in entries:
        if entry["adkflag"] in ("ok", "adk eval only", "AgentEvaluator only"):
            continue
        ours = load(corpus / entry["local"], corpus)
        if entry["format"] in READ_AS:
            assert not isinstance(ours, EvalFileError), ours
            assert ours.format == READ_AS[entry["format"]], entry["local"]
            continue
        if entry["format"] in SESSIONS and json.loads((corpus / entry["local"]).read_text()).get("events"):
            assert ours.format == "adk_session", entry["local"]
            continue
        if entry["local"] in READ_ALTHOUGH_REFUSED:
            assert ours.warnings, entry["local"]
            continue
        assert isinstance(ours, EvalFileError), entry["local"]
        assert ours.problems
        assert all(problem.line for problem in ours.problems), ours
        if entry["format"] in NAMED:
            assert NAMED[entry["format"]] in str(ours), ours


def test_comments_and_trailing_commas_are_reported_with_their_line(entries, corpus):
    seen = 0
    for entry in entries:
        invalid = [
            odd for odd in entry["odd"] if odd.startswith("INVALID JSON") and ("comma" in odd or "comments" in odd)
        ]
        if invalid:
            seen += 1
            ours = load(corpus / entry["local"], corpus)
            assert isinstance(ours, EvalFileError)
            (problem,) = ours.problems
            assert "trailing comma" in problem.message or "comments are not allowed" in problem.message
            text = (corpus / entry["local"]).read_text().splitlines()[problem.line - 1]
            assert text.rstrip().endswith(",") or "#" in text or "//" in text
    assert seen >= 8


def test_round_trip_gives_an_equal_set_with_equal_digests(entries, corpus, tmp_path):
    seen = 0
    for entry in entries:
        ours = load(corpus / entry["local"], corpus)
        if isinstance(ours, EvalFileError) or any(isinstance(case, ReplayCase) for case in ours.eval_set.eval_cases):
            continue
        if ours.format not in READ_AS.values():
            written = tmp_path / "again.evalset.json"
            written.write_text(json.dumps(dump_eval_set(ours.eval_set)))
            again = load(written, tmp_path)
            assert again.format == "adk"
            assert again.eval_set == ours.eval_set
            assert [case_digest(one) for one in again.eval_set.eval_cases] == [
                case_digest(one) for one in ours.eval_set.eval_cases
            ]
            seen += 1
    assert seen >= FEWEST_LOADED - 20


def test_lines_of_cases_point_at_their_objects(entries, corpus):
    for entry in entries:
        ours = load(corpus / entry["local"], corpus)
        if not isinstance(ours, EvalFileError) and ours.format == "adk":
            lines = (corpus / entry["local"]).read_text().splitlines()
            for case in ours.eval_set.eval_cases:
                assert "{" in lines[case.line - 1]
                near = "".join(lines[case.line - 1 :]).replace(" ", "")
                assert json.dumps(case.eval_id, ensure_ascii=False) in near
