"""The same replies of a model make the same user as in google-adk 2.13, and scenarios become the same cases."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from agent_eval_action.agents.base import ConversationEnd
from agent_eval_action.agents.simulator import SimulatedUser
from agent_eval_action.cli.app import app
from agent_eval_action.config.criteria import UserSimulatorConfig
from agent_eval_action.results.evalset import Content, ConversationScenario, Invocation
from support import adk_program
from support.scripted_llm import ScriptedLlm

PROGRAM = Path(__file__).with_name("adk_users.py")
Ask = Callable[..., dict[str, Any]]
SCENARIO = {"starting_prompt": "Hello", "conversation_plan": "Ask how hot {{ it }} is."}
GRUMBLER = {
    "id": "GRUMBLER",
    "description": "Is never content: {{ stop_signal }}.",
    "behaviors": [
        {
            "name": "Grumble",
            "description": "Finds fault with {{ conversation_plan }}.",
            "behavior_instructions": ["Find fault.", "Say {{ stop_signal }}."],
            "violation_rubrics": ["The message praises."],
        }
    ],
}


@pytest.fixture(scope="module")
def adk_users(adk213_python: Path) -> Iterator[Ask]:
    with adk_program.running(adk213_python, PROGRAM) as asked:
        yield lambda **request: asked(request)


async def ours(
    scenario: dict[str, Any], config: dict[str, Any], replies: list[str | None], answers: list[str]
) -> dict[str, Any]:
    """A conversation with our user, in the words of the oracle's program."""
    says = iter(replies)
    llm = ScriptedLlm(lambda _: next(says) or "")
    made = UserSimulatorConfig.model_validate(config)
    user = SimulatedUser(llm, ConversationScenario.model_validate(scenario), made)
    turns: list[Invocation] = []
    while True:
        said = await user.next(turns)
        if not isinstance(said, Content):
            ended = {"stop_signal": "stop_signal_detected", "turn_limit": "turn_limit_reached"}
            how = ended[said.reason] if isinstance(said, ConversationEnd) else "error"
            texts = [turn.user_content.text for turn in turns]
            return {"said": texts, "ended": how, "asked": [one.messages[0].text for one in llm.asked]}
        answer = {"role": "model", "parts": [{"text": answers[len(turns)]}]}
        turns.append(Invocation.model_validate({"user_content": said.model_dump(), "final_response": answer}))


texts = st.one_of(
    st.sampled_from(["</finished>", "ok </FINISHED>", "</finished", "< /finished>", "Go on.", "a\nb", " x "]),
    st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8).filter(str.strip),
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    replies=st.lists(st.one_of(st.none(), texts), max_size=6),
    answers=st.lists(texts, min_size=8, max_size=8),
    limit=st.integers(-2, 5),
)
async def test_the_same_replies_make_the_same_conversation(
    adk_users: Ask, replies: list[str | None], answers: list[str], limit: int
) -> None:
    if limit == 0:
        return  # refused here: nothing would be said
    config = {"max_allowed_invocations": limit}
    given_replies = [*replies, "</finished>"]
    theirs = adk_users(scenario=SCENARIO, config=config, replies=given_replies, answers=answers)
    mine = await ours(SCENARIO, config, given_replies, answers)
    assert (mine["said"], mine["ended"], len(mine["asked"])) == (theirs["said"], theirs["ended"], len(theirs["asked"]))


TEMPLATES = [
    "{{ stop_signal }}|{{conversation_plan}}|{{- conversation_history -}}|",
    """{# none #}{% if stop_signal %}{{ stop_signal | upper }}{% endif %} {{ nobody }} {{ '{{' }}
    {{ conversation_plan | replace('hot', 'cold') }} {{ conversation_history | length > 0 }}""",
]
PERSONA = """{{ persona.id }} {{ persona.description }}
{% for b in persona.behaviors %}{{ loop.index }} {{ b.name }} {{ b.description }}
{{ b.get_behavior_instructions_str() }} {{ b.get_violation_rubrics_str() }}
{{ b.behavior_instructions | join('; ') }}{% endfor %}
{{ stop_signal }}{{ conversation_plan }}{% set h = conversation_history %}{{ 1 if h else 0 }}"""


# google-adk 2.13 has a filter `render_string_filter` for its own prompts, and refuses it in custom instructions.
@pytest.mark.parametrize("template", [*TEMPLATES, PERSONA])
async def test_custom_instructions_are_rendered_the_same_but_for_the_form_of_history(
    adk_users: Ask, template: str
) -> None:
    scenario = {**SCENARIO, **({"user_persona": GRUMBLER} if template == PERSONA else {})}
    config = {"custom_instructions": template}
    theirs = adk_users(scenario=scenario, config=config, replies=["</finished>"], answers=["Hi"])
    mine = await ours(scenario, config, ["</finished>"], ["Hi"])
    as_json = '{"from": "user", "text": "Hello"}\n{"from": "agent", "text": "Hi"}'
    assert [one.replace(as_json, "user: Hello\n\nagent: Hi") for one in mine["asked"]] == theirs["asked"]


@pytest.mark.parametrize(
    "config",
    [
        {"custom_instructions": "{{ stop_signal }} {{ conversation_plan }}"},
        {"custom_instructions": "{{ stop_signal }} {{ conversation_plan }} {# conversation_history #}"},
        {"custom_instructions": "{{ stop_signal"},
    ],
)
def test_what_adk_refuses_is_refused(adk_users: Ask, config: dict[str, str]) -> None:
    assert "error" in adk_users(scenario=SCENARIO, config=config, replies=[], answers=[])
    with pytest.raises(ValueError, match="custom_instructions"):
        UserSimulatorConfig.model_validate(config)


def test_scenarios_become_the_cases_google_adk_makes_of_them(adk_users: Ask, tmp_path: Path) -> None:
    scenarios = [
        {"starting_prompt": "Grüezi", "conversation_plan": "Go to Zürich. 🚋"},
        {"startingPrompt": "Hi", "conversationPlan": "Complain.", "userPersona": GRUMBLER},
        {"starting_prompt": "Grüezi", "conversation_plan": "Go to Zürich. 🚋", "user_persona": None},
    ]
    text = json.dumps({"scenarios": scenarios})
    session = json.dumps({"app_name": "clerk", "user_id": "u", "state": {"tram": None}})
    (tmp_path / "scenarios.json").write_text(text)
    (tmp_path / "session.json").write_text(session)
    written = [tmp_path / "one" / "trips.evalset.json", tmp_path / "two" / "trips.evalset.json"]
    for path in written:
        argv = ["convert", f"{tmp_path}/scenarios.json", "--session-file", f"{tmp_path}/session.json", "-o", str(path)]
        done = CliRunner().invoke(app, argv)
        assert done.exit_code == 0, done.output
    assert written[0].read_text() == written[1].read_text()
    assert adk_users(set=str(written[0])) == adk_users(file=text, session=session, ids=True)


def test_a_built_in_persona_is_written_by_name_and_loaded_by_google_adk(adk_users: Ask, tmp_path: Path) -> None:
    scenarios = [{**SCENARIO, "user_persona": name} for name in ("EXPERT", "NOVICE", "EVALUATOR")]
    (tmp_path / "scenarios.json").write_text(json.dumps({"scenarios": scenarios}))
    path = tmp_path / "s.evalset.json"
    assert CliRunner().invoke(app, ["convert", f"{tmp_path}/scenarios.json", "-o", str(path)]).exit_code == 0
    loaded = adk_users(set=str(path))
    assert [case["conversation_scenario"]["user_persona"]["id"] for case in loaded["cases"]] == [
        "EXPERT",
        "NOVICE",
        "EVALUATOR",
    ]
    assert loaded["id"] == "s"
