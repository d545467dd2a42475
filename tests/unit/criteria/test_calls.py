"""Criteria about calls, agents and state, with scores computed by hand and properties over any calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_eval_action.config.criteria import CriterionSpec
from agent_eval_action.criteria import CRITERIA, build, criterion_digest
from agent_eval_action.criteria.base import Sample, relaxations
from agent_eval_action.criteria.calls import ArgumentRule, matched_calls
from agent_eval_action.errors import AgentEvalError
from agent_eval_action.results.evalset import (
    Content,
    EvalCase,
    FunctionCall,
    InnerEvent,
    IntermediateData,
    Invocation,
    InvocationEvent,
    InvocationEvents,
    Part,
)
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus

SHARES = ("trajectory_precision", "trajectory_recall", "trajectory_f1", "trajectory_similarity")


def call(text: str, **args: Any) -> FunctionCall:
    return FunctionCall(name=text, args=args)


def turn(*calls: FunctionCall, answer: str = "") -> Invocation:
    return Invocation(
        user_content=Content(role="user", parts=(Part(text="go"),)),
        final_response=Content(role="model", parts=(Part(text=answer),)),
        intermediate_data=IntermediateData(tool_uses=calls),
    )


def score(name: str, want: Invocation, got: Invocation, **options: Any) -> CriterionScore:
    (criterion,) = build([CriterionSpec(name, {"threshold": 0.5, **options})])
    return asyncio.run(criterion.score(Sample(EvalCase(eval_id="x", conversation=(want,)), (got,))))


def shares(want: str, got: str) -> list[float | None]:
    sides = [turn(*map(call, names)) for names in (want, got)]
    return [score(name, *sides).score for name in SHARES]


@pytest.mark.parametrize(
    ("want", "got", "expected"),
    [
        ("", "", [1, 1, 1, 1]),
        ("ab", "ab", [1, 1, 1, 1]),
        ("ab", "", [1, 0, 0, 0]),
        ("", "a", [0, 1, 0, 0]),
        ("ab", "a", [1, 0.5, 2 / 3, 0.5]),
        ("ab", "ba", [1, 1, 1, 0]),
        ("ab", "axb", [2 / 3, 1, 0.8, 2 / 3]),
        ("a", "aa", [0.5, 1, 2 / 3, 0.5]),
        ("aab", "ab", [1, 2 / 3, 0.8, 2 / 3]),
    ],
)
def test_shares_of_calls(want: str, got: str, expected: list[float]) -> None:
    assert shares(want, got) == pytest.approx(expected)


NAMES = st.text("abc", max_size=6)


@given(NAMES, NAMES)
def test_shares_are_symmetric_and_one_for_equal_calls_alone(want: str, got: str) -> None:
    precision, recall, f1, similarity = shares(want, got)
    back = shares(got, want)
    if want and got:
        assert (precision, recall) == (back[1], back[0])
    assert (f1, similarity) == pytest.approx((back[2], back[3]))
    assert (f1 == 1) == (sorted(want) == sorted(got))
    assert (similarity == 1) == (want == got)


RULES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], bool]] = [
    ({}, {"a": 1}, {"a": 1}, True),
    ({}, {"a": 1}, {"a": 1, "b": 2}, False),
    ({"subset": True}, {"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3}, True),
    ({"subset": True}, {"a": 1, "b": 2}, {"a": 1}, False),
    ({"ignore": ["a.b"]}, {"a": {"b": 1, "c": 2}}, {"a": {"b": 9, "c": 2}}, True),
    ({"ignore": ["a.b"]}, {"a": {"b": 1, "c": 2}}, {"a": {"c": 2}}, True),
    ({"ignore": ["a.b"]}, {"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, False),
    ({"ignore": ["*"]}, {"a": 1}, {"b": 2}, True),
    ({"only": ["a.b", "id"]}, {"a": {"b": 1, "c": 2}, "x": 1}, {"a": {"b": 1, "c": 3}, "y": 1}, True),
    ({"only": ["a.b"]}, {"a": {"b": 1}}, {"a": {"b": 2}}, False),
    ({"only": ["a"]}, {"a": {"b": 1}}, {"a": {"b": 2}}, False),
    ({"only": ["a"]}, {"a": 1}, {}, False),
    ({"ignore": ["items.1"]}, {"items": [1, 2]}, {"items": [1, 3]}, True),
    ({"tolerance": 0.1}, {"a": [1.0]}, {"a": [1.05]}, True),
    ({"tolerance": 0.1}, {"a": 1}, {"a": 1.2}, False),
    ({"tolerance": 0.1}, {"a": True}, {"a": 1.05}, False),
    ({"patterns": {"a.q": "^sel.*from"}}, {"a": {"q": "x"}}, {"a": {"q": "select 1 from t"}}, True),
    ({"patterns": {"q": "^sel"}}, {}, {"q": "update"}, False),
    ({"patterns": {"q": "^sel"}}, {}, {"q": "select"}, True),
    ({"ignore_case": True}, {"a": "Straße"}, {"a": "STRASSE"}, True),
    ({"ignore_whitespace": True}, {"a": "x  y"}, {"a": " x\ty "}, True),
    ({"ignore_whitespace": True}, {"a": "x y"}, {"a": "X y"}, False),
]


@pytest.mark.parametrize(("rule", "want", "got", "same"), RULES)
@pytest.mark.parametrize("name", [*SHARES, "tool_trajectory_avg_score"])
def test_arguments_are_compared_by_the_rule_of_the_tool(
    name: str, rule: dict[str, Any], want: dict[str, Any], got: dict[str, Any], same: bool
) -> None:
    for tool in ("find", "*"):
        found = score(name, turn(call("find", **want)), turn(call("find", **got)), arguments={tool: rule})
        assert found.score == float(same), found.reason
    other = score(name, turn(call("other", **want)), turn(call("other", **got)), arguments={"find": rule})
    assert other.score == float(want == got), "the rule is of another tool"


def test_a_rule_holds_in_any_order_and_matches_as_many_as_can_be() -> None:
    want, got = (call("f", a="x"), call("f", a="y")), (call("f", a="Y"), call("f", a="X"))
    options = {"match_type": "ANY_ORDER", "arguments": {"f": {"ignore_case": True}}}
    assert score("tool_trajectory_avg_score", turn(*want), turn(*got), **options).score == 1
    loose = {"f": ArgumentRule(patterns={"a": "."})}
    assert matched_calls(want, (call("f", a="y"), call("f", a="x"), call("g")), loose).keys() == {0, 1}


def test_scores_without_rules_stay_comparable_with_those_of_before() -> None:
    (plain,) = build([CriterionSpec("tool_trajectory_avg_score", {"threshold": 1})])
    assert "arguments" not in plain.model_dump(mode="json")
    (ruled,) = build(
        [CriterionSpec("tool_trajectory_avg_score", {"threshold": 1, "arguments": {"*": {"subset": True}}})]
    )
    assert criterion_digest(plain) != criterion_digest(ruled)


def test_one_tool_repetition_and_route() -> None:
    made = turn(call("a", x=1), call("b"), call("a", x=1), call("a", x=2))
    assert score("trajectory_single_tool_use", turn(), made, tool="a").score == 1
    assert score("trajectory_single_tool_use", turn(), made, tool="c").score == 0
    assert score("redundant_calls", turn(), made).score == 1
    assert score("redundant_calls", turn(), turn(call("a"), call("b"))).score == 0
    events = [InvocationEvent(author=author) for author in ("user", "root", "helper", "root")]
    routed = turn().model_copy(update={"intermediate_data": InvocationEvents(invocation_events=tuple(events))})
    assert score("agent_route", turn(), routed, agents=["root", "helper"]).score == 1
    assert score("agent_route", turn(), routed, agents=["helper"]).score == 0
    assert score("agent_route", routed, routed).score == 1
    assert score("agent_route", turn(), routed).status is ScoreStatus.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("want", "got", "expected"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3}, 1),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, 0),
        ({"a": None}, {}, 0),
        ({"a": [1]}, {"a": [1, 2]}, 0),
        ({}, {"a": 1}, None),
        ({"a": 1}, None, None),
    ],
)
def test_state_at_the_end_has_what_the_case_expects(want: Any, got: Any, expected: float | None) -> None:
    (criterion,) = build([CriterionSpec("final_session_state", {"threshold": 1})])
    case = EvalCase(eval_id="x", conversation=(turn(), turn()), final_session_state=want)
    found = asyncio.run(criterion.score(Sample(case, (turn(), turn()), final_session_state=got)))
    assert found.score == expected, found.reason


def _distance(first: str, second: str) -> int:
    if not first or not second:
        return len(first) + len(second)
    rest = _distance(first[1:], second[1:])
    if first[0] == second[0]:
        return rest
    return 1 + min(rest, _distance(first[1:], second), _distance(first, second[1:]))


@settings(deadline=None)  # the first one imports numpy
@given(st.text("ab", max_size=5), st.text("abé", max_size=5))
def test_similarity_is_one_minus_levenshteins_distance(want: str, got: str) -> None:
    found = score("answer_similarity", turn(answer=want), turn(answer=got)).score
    assert found == pytest.approx(1 - _distance(want, got) / max(len(want), len(got), 1))


def test_texts() -> None:
    def of(name: str, want: str, got: str, **options: Any) -> float | None:
        return score(name, turn(answer=want), turn(answer=got), **options).score

    assert of("answer_exact_match", "A  b", "a b") == 0
    assert of("answer_exact_match", "A  b", "a b", ignore_case=True, ignore_whitespace=True) == 1
    assert of("answer_contains", "", "one two", texts=["one", "three"]) == 0.5
    assert of("answer_contains", "two", "one two") == 1
    assert of("answer_contains", "three", "one two") == 0
    assert of("answer_contains", "", "one two") is None, "there is no reference"
    assert of("answer_pattern", "", "order 1042", pattern=r"\d{4}") == 1
    assert of("answer_pattern", "", "order\ud800", pattern=r"^\d") == 0
    assert score("answer_similarity", turn(answer="x" * 20_000), turn(answer="y")).status is ScoreStatus.ERROR


def test_hostile_calls_are_no_score_and_no_crash() -> None:
    deep: Any = []
    for _ in range(20_000):
        deep = [deep]
    for name in (*SHARES, "redundant_calls"):
        found = score(name, turn(call("a", x=1)), turn(*([call("a", x=1)] * 600)))
        assert found.status in {ScoreStatus.ERROR, ScoreStatus.SCORED}
    assert all(CRITERIA[name].name == name for name in SHARES)


def made_in(author: str, within: str | None, identifier: str, name: str) -> InnerEvent:
    part = Part(function_call=FunctionCall(id=identifier, name=name, args={}))
    return InnerEvent(author=author, within=within, content=Content(role="model", parts=(part,)))


def test_calls_of_agents_called_as_tools_count_where_the_criterion_says_so() -> None:
    inner = (
        made_in("clerk", "1", "2", "look"),
        made_in("clerk", "1", "3", "look"),
        made_in("archivist", "3", "4", "find"),
    )
    own = (made_in("desk", None, "1", "clerk"), made_in("desk", None, "5", "look"))
    events = tuple(InvocationEvent(author=event.author, content=event.content) for event in own)
    got = turn().model_copy(
        update={"intermediate_data": InvocationEvents(invocation_events=events), "inner_events": inner}
    )
    assert [made.name for made in got.tool_calls()] == ["clerk", "look"]
    assert [made.name for made in got.all_tool_calls()] == ["clerk", "look", "look", "find", "look"]
    shallow, whole = (
        turn(*map(call, names)) for names in (["clerk", "look"], ["clerk", "look", "look", "find", "look"])
    )
    for name in (*SHARES, "tool_trajectory_avg_score"):
        assert score(name, shallow, got).score == 1
    for name in SHARES:
        assert score(name, whole, got, inner_calls=True).score == 1
        assert score(name, shallow, got, inner_calls=True).score != score(name, shallow, got).score or "recall" in name
    assert [
        score("trajectory_single_tool_use", whole, got, tool="find", inner_calls=on).score for on in (False, True)
    ] == [0, 1]
    assert [score("redundant_calls", whole, got, inner_calls=on).score for on in (False, True)] == [0, 2]
    routes = {False: ["desk"], True: ["desk", "clerk", "archivist"]}
    for on, agents in routes.items():
        assert score("agent_route", whole, got, agents=agents, inner_calls=on).score == 1
        assert score("agent_route", whole, got, agents=agents, inner_calls=not on).score == 0


def test_the_option_for_agents_called_as_tools_begins_no_new_history_where_it_is_off() -> None:
    plain, off, on = (
        criterion_digest(build([CriterionSpec("trajectory_f1", {"threshold": 0.5, **options})])[0])
        for options in ({}, {"inner_calls": False}, {"inner_calls": True})
    )
    assert plain == off != on


SCHEMA = {
    "type": "object",
    "properties": {"total": {"type": "number", "minimum": 0}, "code": {"pattern": "^(a+)+$"}},
    "required": ["total"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("answer", "expected", "said"),
    [
        ('{"total": 3.5}', 1, "as the schema says"),
        ('{"total": -1}', 0, "total: -1 is less than the minimum of 0"),
        ('{"total": true}', 0, "total: true is not of type"),
        ('{"totals": 1}', 0, "'totals'"),
        ('{"total": 1, "code": "' + "a" * 5000 + '!"}', 0, "does not match"),
        ('{"total": NaN}', 0, "no JSON"),
        ('```json\n{"total": 1}\n```', 0, "no JSON"),
        ("[" * 100_000, 0, "no JSON"),
        (r'{"\ud800|<script>": "@everyone\u001b[0m", "total": 1}', 0, "<script>"),
        ('{"total": 1' + "0" * 400 + "}", 1, "as the schema says"),
        ("", 0, "no JSON"),
    ],
)
def test_an_answer_is_json_of_the_schema(answer: str, expected: int, said: str) -> None:
    found = score("answer_json_schema", turn(), turn(answer=answer), json_schema=SCHEMA)
    assert found.score == expected
    assert said in found.turns[0].reason


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objekt"},
        {"pattern": "("},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"properties": {"a": {"pattern": "(?=a)"}}},
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_before_the_run(schema: dict[str, Any]) -> None:
    with pytest.raises(AgentEvalError, match="json_schema"):
        score("answer_json_schema", turn(), turn(answer="{}"), json_schema=schema)


def test_another_schema_may_ask_for_less() -> None:
    looser = {**SCHEMA, "required": []}
    declared = CRITERIA.get("answer_json_schema").relaxed_when
    found = relaxations({"json_schema": SCHEMA}, {"json_schema": looser}, declared)
    assert [one.option for one in found] == ["json_schema"]


@pytest.mark.parametrize(
    ("want", "got", "same"),
    [
        (1, True, False),
        (True, 1, False),
        (0, False, False),
        (1, 1.0, True),
        ([1], [True], False),
        ([{"a": 1}], [{"a": 1.0}], True),
    ],
)
def test_states_are_compared_as_json(want: Any, got: Any, *, same: bool) -> None:
    (criterion,) = build([CriterionSpec("final_session_state", {"threshold": 0.5})])
    case = EvalCase(eval_id="x", conversation=(turn(),), final_session_state={"paid": want})
    sample = Sample(case, (turn(),), final_session_state={"paid": got})
    assert asyncio.run(criterion.score(sample)).score == same
