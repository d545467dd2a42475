"""Every file of the corpus and what becomes of it, in ``corpus.json``: what is read, as what, and what is refused, why.

A new file of the corpus is missing in the table until somebody writes down what is meant (``pytest --update-golden``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action import criteria
from agent_eval_action.config.criteria_files import load_criteria_file
from agent_eval_action.errors import AgentEvalError
from agent_eval_action.formats import load_eval_file

TABLE = Path(__file__).with_name("corpus.json")
OWN_INDEX = {"INDEX.json", "INDEX.md"}

REFUSED_ON_PURPOSE = {
    "case-aggregation-app": "two metrics that are the same criterion of ours",
    "jieba-eval-app": "ROUGE with thresholds for precision and recall, and tokens of a Chinese dictionary",
    "rouge-app": "ROUGE with thresholds for precision and recall",
    "template-eval-app": "a judge by a template, which is scored by code of theirs",
    "template-trace-eval-app": "a judge that sees steps of their traces",
    "trpcagent-travel-agent": "a judge that sees steps of their traces",
    "metric-extension-app": "a metric that is code of theirs",
    "promptiter-nba-commentary-app": "a judge that compares with the reference by rubrics",
    "promptiter-sports-recap-agent": "a judge that compares with the reference by rubrics",
    "eval_config.yaml": "the corpus lacks the file with the metric's code",
}
"""Files that their own ecosystem loads and we refuse, by a part of their path, with the reason."""


def outcome(path: Path, family: str, corpus: Path) -> str:
    """What becomes of a file, in one line."""
    try:
        if family.startswith("config"):
            config = load_criteria_file(path, workspace=corpus)
            names = [criterion.name for criterion in criteria.build(config.specs)]
            said = [warning.message for warning in config.warnings]
            return "; ".join([f"criteria {', '.join(names)}", *said])
        loaded = load_eval_file(path, workspace=corpus)
    except AgentEvalError as error:
        return "refused: " + "; ".join(f"line {problem.line}: {problem.message}" for problem in error.problems)
    return f"{loaded.format}: {len(loaded.eval_set.eval_cases)} cases"


@pytest.fixture(scope="module")
def index(corpus: Path) -> dict[str, Any]:
    return {entry["local"]: entry for entry in json.loads((corpus / "INDEX.json").read_text())}


def test_every_file_becomes_what_the_table_says(index, corpus, request):
    files = {path.relative_to(corpus).as_posix() for path in corpus.rglob("*") if path.is_file()} - OWN_INDEX
    assert files == index.keys(), "the index of the corpus does not list what is there"
    found = {name: outcome(corpus / name, index[name]["fam"], corpus) for name in sorted(files)}
    if request.config.getoption("--update-golden"):
        TABLE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    meant = json.loads(TABLE.read_text(encoding="utf-8"))
    assert meant.keys() == files, "say what is meant of each file: pytest --update-golden, then read the difference"
    assert {name: said for name, said in found.items() if said != meant[name]} == {}


def test_a_refusal_names_a_line():
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    assert [name for name, said in table.items() if said.startswith("refused") and "line None" in said] == []


def test_what_its_own_ecosystem_loads_is_refused_for_a_reason_alone(index):
    """ADK says in the index what it loads; files of the others are well-formed ones of their own repositories."""
    of_others = ("config: trpc", "config: agents-cli", "evalset camelCase", "agents-cli")
    used = set()
    for name, said in json.loads(TABLE.read_text(encoding="utf-8")).items():
        entry = index[name]
        loads = entry["adkflag"] in ("ok", "adk eval only", "AgentEvaluator only") or entry["fam"].startswith(of_others)
        if loads and said.startswith("refused"):
            reasons = {part for part in REFUSED_ON_PURPOSE if part in name}
            assert reasons, f"{name}: {said}"
            used |= reasons
    assert used == REFUSED_ON_PURPOSE.keys()
