"""A packed case is the case, and is not kept unpacked."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

from agent_eval_action.formats import case_digest, load_eval_file
from agent_eval_action.results.evalset import EvalCase
from agent_eval_action.run.plan import PlannedCase

TURN = {
    "user_content": {"role": "user", "parts": [{"text": "ä \U0001f600"}, {"videoMetadata": {"fps": 1}}]},
    "final_response": {"parts": [{"text": "yes"}]},
    "intermediate_data": {
        "tool_uses": [{"name": "look", "args": {"n": 1, "x": 1.0, "deep": [{"a": None}], "b": True}}]
    },
}
CASES = [
    {"eval_id": "fixed", "conversation": [TURN, TURN], "session_input": {"app_name": "a", "user_id": "u"}},
    {"eval_id": "events", "conversation": [{**TURN, "intermediate_data": {"invocation_events": []}}]},
    {"eval_id": "played", "conversation_scenario": {"starting_prompt": "Hi", "conversation_plan": "Ask."}},
]


def cases_of(folder: Path) -> tuple[EvalCase, ...]:
    path = folder / "s.evalset.json"
    path.write_text(json.dumps({"eval_set_id": "s", "eval_cases": CASES}, indent=1))
    return load_eval_file(path, workspace=folder).eval_set.eval_cases


def test_a_packed_case_is_the_same_in_everything(tmp_path: Path) -> None:
    for case in cases_of(tmp_path):
        planned = PlannedCase.from_case(case, "digest").packed()
        assert planned.case == case
        assert planned.case.line == case.line == planned.line
        assert repr(planned.case) == repr(case)
        assert planned.case.model_dump_json(exclude_unset=True) == case.model_dump_json(exclude_unset=True)
        assert case_digest(planned.case) == case_digest(case)
        assert (planned.eval_id, planned.has_scenario) == (case.eval_id, case.conversation_scenario is not None)


def test_what_a_plan_keeps_of_a_case_is_small(tmp_path: Path) -> None:
    case = cases_of(tmp_path)[0]
    packed = PlannedCase.from_case(case, "digest").packed()
    assert isinstance(packed.definition, bytes)
    assert len(packed.definition) < len(pickle.dumps(case)) * 2 / 3
    assert packed.packed() is packed
