"""Random eval files: near-valid ones built from the schema, and valid ones damaged at random."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

from agent_eval_action.results.evalset import EvalSet

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([10**20, 10**400, 1.5, 1.0, -0.0, 1e300]),
    st.sampled_from(
        [
            "",
            "x",
            "true",
            "YES",
            "1",
            "1.5",
            " 2 ",
            "inf",
            "YWJj",
            "-_-_",
            "+/+/",
            "a",
            "é\u202e",
            "\u0000",
            "OUTCOME_OK",
        ]
    ),
)
free = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", "name"]), inner, max_size=2),
)

SAMPLE_NEW: Any = {
    "eval_set_id": "set",
    "name": "n",
    "eval_cases": [
        {
            "eval_id": "one",
            "conversation": [
                {
                    "invocation_id": "i",
                    "user_content": {
                        "role": "user",
                        "parts": [{"text": "hi"}, {"inline_data": {"mime_type": "a/b", "data": "YWJj"}}],
                    },
                    "final_response": {
                        "role": "model",
                        "parts": [
                            {"text": "yes", "thought": False, "thought_signature": "YWJj"},
                            {"video_metadata": {"fps": 1.5}, "file_data": {"file_uri": "gs://x", "mime_type": "v/m"}},
                            {"code_execution_result": {"outcome": "OUTCOME_OK", "output": "1"}},
                        ],
                    },
                    "intermediate_data": {
                        "tool_uses": [{"id": None, "name": "roll", "args": {"sides": 6}, "will_continue": False}],
                        "tool_responses": [{"name": "roll", "response": {"result": 3}, "scheduling": "SILENT"}],
                        "intermediate_responses": [["agent", [{"text": "rolling"}]]],
                    },
                    "rubrics": [{"rubric_id": "r", "rubric_content": {"text_property": "good"}, "type": "T"}],
                    "app_details": {
                        "agent_details": {
                            "root": {"name": "root", "instructions": "do", "tool_declarations": [{"a": 1}, "b"]}
                        }
                    },
                    "creation_timestamp": 1.5,
                    "duration": 2.0,
                },
                {
                    "user_content": {"parts": [{"text": "again"}]},
                    "intermediate_data": {
                        "invocation_events": [
                            {
                                "author": "root",
                                "content": {"parts": [{"function_call": {"name": "f", "args": {}}}]},
                                "usage_metadata": {
                                    "total_token_count": 3,
                                    "prompt_tokens_details": [{"modality": "TEXT"}],
                                },
                                "grounding_metadata": {
                                    "web_search_queries": ["q"],
                                    "grounding_chunks": [{"web": {"uri": "u"}}],
                                },
                                "model_version": "m",
                                "invocation_index": 3,
                            }
                        ]
                    },
                },
            ],
            "session_input": {"app_name": "app", "user_id": "u", "state": {"k": [1]}, "extra": 1},
            "final_session_state": {"done": True},
            "tags": ["t"],
        },
        {
            "eval_id": "two",
            "conversation_scenario": {
                "starting_prompt": "s",
                "conversation_plan": "p",
                "user_persona": {
                    "id": "me",
                    "description": "d",
                    "behaviors": [
                        {"name": "n", "description": "d", "behavior_instructions": ["i"], "violation_rubrics": ["v"]}
                    ],
                },
            },
            "rubrics": [],
        },
        {"eval_id": "three", "conversation": [], "conversation_scenario": None},
    ],
}
TURNS: Any = [
    {
        "query": "q",
        "expected_tool_use": [{"tool_name": "t", "tool_input": {"a": 1}}],
        "expected_intermediate_agent_responses": [{"author": "a", "text": "x"}],
        "reference": "r",
    },
    {"query": "q2", "expected_tool_use": [], "reference": ""},
]
SAMPLE_CASES: Any = [
    {"name": "one", "data": TURNS, "initial_session": {"state": {"a": 1}, "app_name": "app", "user_id": "u"}},
    {"name": "two", "data": [{"query": "q"}], "initial_session": {}},
]


SAMPLE_PLAIN: Any = {
    "eval_set_id": "set",
    "eval_cases": [
        {
            "eval_id": "one",
            "conversation": [
                {
                    "user_content": {"role": "user", "parts": [{"text": "hi"}]},
                    "final_response": {"parts": [{"text": "yes", "thought": False}]},
                    "intermediate_data": {
                        "tool_uses": [{"id": None, "name": "roll", "args": {"sides": 6}}],
                        "intermediate_responses": [["agent", [{"text": "rolling"}]]],
                    },
                    "creation_timestamp": 1.5,
                },
                {
                    "user_content": {"parts": [{"text": "again"}]},
                    "intermediate_data": {
                        "invocation_events": [
                            {"author": "root", "content": {"parts": [{"function_call": {"name": "f", "args": {}}}]}}
                        ]
                    },
                },
            ],
            "session_input": {"app_name": "app", "user_id": "u", "state": {"k": [1]}},
            "final_session_state": {"done": True},
        },
        {
            "eval_id": "two",
            "conversation_scenario": {"starting_prompt": "s", "conversation_plan": "p", "user_persona": "NOVICE"},
        },
    ],
}


def camel(word: str) -> str:
    first, *rest = word.split("_")
    return first + "".join(one[:1].upper() + one[1:] for one in rest)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += places(item, (*at, key))
    return found


def holder(value: Any, at: tuple[Any, ...]) -> Any:
    for step in at[:-1]:
        value = value[step]
    return value


@st.composite
def damaged(draw: st.DrawFn, *samples: Any) -> Any:
    """A valid file after one to three random changes."""
    value = copy.deepcopy(draw(st.sampled_from(samples or [SAMPLE_NEW, SAMPLE_NEW, TURNS, SAMPLE_CASES])))
    for _ in range(draw(st.integers(1, 3))):
        if not (known := places(value)):
            break
        at = draw(st.sampled_from(known))
        inside, key = holder(value, at), at[-1]
        change = draw(st.sampled_from(["replace", "null", "delete", "camel", "misspell", "twice", "add", "empty"]))
        if isinstance(inside, list) and change in ("camel", "misspell", "twice", "add"):
            inside.insert(key, copy.deepcopy(inside[key]) if change == "twice" else draw(free))
        elif change == "delete":
            del inside[key]
        elif change == "camel":
            inside[camel(key)] = inside.pop(key)
        elif change == "misspell":
            inside[key + "s"] = inside.pop(key)
        elif change == "twice":
            inside[camel(key)] = draw(st.sampled_from([inside[key], None])) if draw(st.booleans()) else draw(free)
        elif change == "add":
            inside[draw(st.sampled_from(["extra", "text", "role", "name", "id", "data", "query"]))] = draw(free)
        else:
            empties = st.sampled_from(["", {}, []])
            inside[key] = None if change == "null" else draw(empties if change == "empty" else free)
    return value


def text_of(value: Any) -> str:
    """As JSON, huge integers and all."""
    return json.dumps(value, indent=1, ensure_ascii=False)


def dump_eval_set(eval_set: EvalSet) -> Any:
    """The set as JSON values in the current schema, snake_case; reading them again gives an equal set."""
    return json.loads(json.dumps(eval_set.model_dump()))
