"""The built-in personas: complete, findable, and of our own wording."""

from __future__ import annotations

import pytest

from agent_eval_action.results.evalset import (
    BUILT_IN_PERSONAS,
    Persona,
    default_behaviors,
    fill_placeholders,
    find_persona,
)


def test_every_id_an_eval_file_may_name_is_there():
    assert [find_persona(persona).id for persona in BUILT_IN_PERSONAS] == list(BUILT_IN_PERSONAS)


def test_a_persona_is_found_by_its_id_and_a_custom_one_is_itself():
    own = Persona(id="PIRATE", description="Talks like one.", behaviors=())
    assert find_persona(own) is own
    assert find_persona("NOVICE").behaviors[-1].name == "Casual tone"


def test_a_user_without_a_persona_behaves_in_a_way_that_some_persona_does_too():
    known = {behavior for persona in BUILT_IN_PERSONAS for behavior in find_persona(persona).behaviors}
    assert len(default_behaviors()) == 6
    assert set(default_behaviors()) <= known


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("Expert", "did you mean `EXPERT`?"), ("NOVIZE", "did you mean `NOVICE`?"), ("xyz", "the built-in ones are")],
)
def test_an_unknown_id_is_refused_with_a_suggestion(wrong, said):
    with pytest.raises(ValueError, match=r"no persona has the id") as raised:
        find_persona(wrong)
    assert said in str(raised.value)


@pytest.mark.parametrize("persona", [*map(find_persona, BUILT_IN_PERSONAS)], ids=BUILT_IN_PERSONAS)
def test_a_behaviour_tells_what_to_do_and_what_breaks_it(persona):
    assert persona.description
    assert len({behavior.name for behavior in persona.behaviors}) == len(persona.behaviors)
    for behavior in persona.behaviors:
        assert behavior.description
        assert behavior.behavior_instructions
        assert behavior.violation_rubrics


@pytest.mark.parametrize("persona", [*map(find_persona, BUILT_IN_PERSONAS)], ids=BUILT_IN_PERSONAS)
def test_each_persona_knows_how_a_conversation_ends(persona):
    said = " ".join(line for behavior in persona.behaviors for line in behavior.behavior_instructions)
    assert "{{ stop_signal }}" in said


def test_placeholders_are_filled_once():
    assert fill_placeholders("{{a}} and {{ b }} and {{ c }}", {"a": "{{ b }}", "b": "2"}) == "{{ b }} and 2 and {{ c }}"
