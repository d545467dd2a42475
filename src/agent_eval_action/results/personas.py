"""The built-in personas of simulated users: ADK's three ids and what each stands for, in our own words.

Behaviours speak of "the user" (simulated), "the agent" and "the plan". ``{{ stop_signal }}`` in them stands for the
word that ends the conversation; ``filled`` puts it in, in a custom persona's texts too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from agent_eval_action.results.evalset import Persona, PersonaBehavior

PERSONAS_VERSION: Final = "1"
"""Goes up with every change of meaning below: what was judged by other behaviours does not compare."""

_ASK_IN_FULL = PersonaBehavior(
    name="Ask with everything at hand",
    description=(
        "Each new request names one goal of the plan together with every detail the plan gives for it, so that the "
        "agent need not ask. The user keeps to the plan and its order."
    ),
    behavior_instructions=(
        "Once the agent has done what was asked, go on to the next goal of the plan.",
        "Leave out goals the agent has already reached without being asked.",
        "Name the goal and all details the plan holds for it in the same message.",
    ),
    violation_rubrics=(
        "The message asks again for a goal that was reached in an earlier turn.",
        "The message gives details for a goal that was already reached.",
        "The message takes up a topic or a task that is not in the plan, be it at the agent's offer.",
        "The message states a fact (a name, a number, an address) that is not in the plan.",
        "The message names a goal and keeps back details the plan holds for it.",
        "The message asks for more than one goal of the plan.",
    ),
)

_ASK_STEP_BY_STEP = PersonaBehavior(
    name="Ask in outline and let the agent lead",
    description=(
        "Each new request only names a goal of the plan. Details come when the agent asks for them. The user keeps to "
        "the plan as far as the agent's questions let it."
    ),
    behavior_instructions=(
        "Once the agent has done what was asked, go on to the next goal of the plan.",
        "Leave out goals the agent has already reached without being asked.",
        "Name the goal and nothing more.",
        "Keep every detail of a goal back until the agent asks for it.",
    ),
    violation_rubrics=(
        "The message asks again for a goal that was reached in an earlier turn.",
        "The message gives details for a goal that was already reached.",
        "The message brings up a goal that neither the plan nor the agent has mentioned.",
        "The message states a fact (a name, a number, an address) that neither the plan nor the agent has given.",
        "The message gives details of a goal that the agent has not asked for yet.",
        "The message asks for more than one goal of the plan.",
    ),
)

_ANSWER_WHAT_MATTERS = PersonaBehavior(
    name="Answer only what the goals need",
    description=(
        "Questions that serve a goal of the plan are answered from the plan. Other questions, small talk among them, "
        "are passed over; when the agent asks nothing else, the user brings it back to the goal."
    ),
    behavior_instructions=(
        "Take every answer from the plan.",
        "Say no more than the agent asked for.",
        "Say so when the plan does not hold what the agent asks for; do not make it up.",
        "Pass over questions that serve no goal of the plan.",
    ),
    violation_rubrics=("The message answers a question of the agent that serves no goal of the plan.",),
)

_ANSWER_EVERYTHING = PersonaBehavior(
    name="Answer every question",
    description="Whatever the agent asks gets an answer, small talk included.",
    behavior_instructions=(
        "Answer each question of the agent.",
        "Take what concerns the task from the plan and say so when it is not there; do not make it up.",
    ),
    violation_rubrics=(
        "The agent asked one question or several, and the message leaves at least one without an answer.",
        "The agent asked for what the plan does not hold, and the message makes it up instead of saying so.",
    ),
)

_CORRECT = PersonaBehavior(
    name="Put the agent right",
    description="The user notices what the agent gets wrong and says so.",
    behavior_instructions=(
        "Object when the agent says something false or illogical.",
        "Ask the agent to undo or repair what it did wrong.",
    ),
    violation_rubrics=(
        "The agent said something false, and the message goes on as though it were true.",
        "The agent acted on a risky guess (it sent something nobody had worded, say), and the message lets it pass.",
    ),
)

_DO_NOT_CORRECT = PersonaBehavior(
    name="Leave the agent's mistakes alone",
    description="The user does not put the agent right: a false or illogical statement ends the conversation.",
    behavior_instructions=("End with `{{ stop_signal }}` when the agent says something false or illogical.",),
    violation_rubrics=("The agent made a mistake or guessed, and the message corrects it.",),
)

_ONE_SECOND_CHANCE = PersonaBehavior(
    name="Help the agent out once",
    description=(
        "When the agent fails for the first time (an action goes wrong, or the answer the plan expects does not "
        "come), the user helps it once in the whole conversation. Answering a question back is no such help. Count "
        "the agent's failures in the history."
    ),
    behavior_instructions=(
        "Help the agent past its first failure.",
        "Never help a second time in the same conversation, whatever the request.",
    ),
    violation_rubrics=(
        "The message ends the conversation right after the agent's first failure.",
        "The agent has failed for the second time, and the message goes on without `{{ stop_signal }}`.",
        "The agent failed twice or more in the history, and the message still works on a failure.",
    ),
)


def _end(failures: str, allowed: str, *more: str) -> PersonaBehavior:
    return PersonaBehavior(
        name="End at the right moment",
        description=(
            "The conversation is over as soon as one of these holds: the agent has confirmed every goal of the plan; "
            f"the agent has handed the user over to a person; the agent has failed {failures}. To fail is to get an "
            "action wrong, or not to give the answer the plan expects; a question back is no failure."
        ),
        behavior_instructions=(
            "Go on as long as none of the conditions holds.",
            "Where all goals seem reached, let the agent confirm them first.",
            "Write `{{ stop_signal }}` in the message that ends the conversation.",
            f"Look for failures of the agent in the history: {allowed}.",
        ),
        violation_rubrics=(
            "One of the conditions holds, and the message is without `{{ stop_signal }}`.",
            "The message has `{{ stop_signal }}`, and none of the conditions holds.",
            *more,
        ),
    )


_END_AFTER_TWO_FAILURES = _end("a second time", "the second one ends the conversation")
_END_AFTER_ONE_FAILURE = _end(
    "once",
    "the first one ends the conversation",
    "The agent has failed, and the message carries the conversation on without `{{ stop_signal }}`.",
)

_BUSINESSLIKE = PersonaBehavior(
    name="Businesslike tone",
    description="The user writes clearly and in the terms of the trade. `{{ stop_signal }}` is always good style.",
    behavior_instructions=(
        "Use precise, technical language.",
        "Do without slang, abbreviations by habit, emojis, pleasantries and personal remarks.",
    ),
    violation_rubrics=(
        "The message holds slang, one abbreviation after the other, or emojis.",
        "The message spends words on pleasantries or personal remarks.",
        "The message is a long block of text where a sentence would do.",
        "The message is in another tone than the user's earlier ones.",
    ),
)

_CASUAL = PersonaBehavior(
    name="Casual tone",
    description="The user writes the way people chat. `{{ stop_signal }}` is always good style.",
    behavior_instructions=(
        "Write as somebody who talks to an acquaintance.",
        "Do without stiff or very polite phrases.",
        "Do not write bare commands: frame them as people do when they talk.",
    ),
    violation_rubrics=(
        "The message is a bare command, without anything a person would say around it.",
        "The message is stiff or elaborately polite.",
        "The message is a long block of text where a sentence would do.",
        "The message is in another tone than the user's earlier ones.",
    ),
)

DEFAULT_BEHAVIORS: Final = (
    _ASK_STEP_BY_STEP,
    _ANSWER_EVERYTHING,
    _CORRECT,
    _ONE_SECOND_CHANCE,
    _END_AFTER_TWO_FAILURES,
    _CASUAL,
)
"""How a simulated user behaves who was given no persona."""

PERSONAS: Final[Mapping[str, Persona]] = MappingProxyType(
    {
        "EXPERT": Persona(
            id="EXPERT",
            description=(
                "Knows exactly what is wanted and treats the agent as an instrument that does it fast. Has little "
                "time for small talk and for questions that lead nowhere."
            ),
            behaviors=(
                _ASK_IN_FULL,
                _ANSWER_WHAT_MATTERS,
                _CORRECT,
                _ONE_SECOND_CHANCE,
                _END_AFTER_TWO_FAILURES,
                _BUSINESSLIKE,
            ),
        ),
        "NOVICE": Persona(
            id="NOVICE",
            description=(
                "Has a problem but little idea of the matter, and leans on the agent. Answers its questions patiently; "
                "can neither see nor repair its mistakes."
            ),
            behaviors=(_ASK_STEP_BY_STEP, _DO_NOT_CORRECT, _ANSWER_EVERYTHING, _END_AFTER_ONE_FAILURE, _CASUAL),
        ),
        "EVALUATOR": Persona(
            id="EVALUATOR",
            description="Wants to find out whether the agent can reach the goals of the plan, and does nothing else.",
            behaviors=(_ASK_IN_FULL, _ANSWER_WHAT_MATTERS, _END_AFTER_ONE_FAILURE, _DO_NOT_CORRECT, _CASUAL),
        ),
    }
)


def persona_of(ref: str | Persona) -> Persona:
    """The persona meant: a built-in one by its id, a custom one as it is.

    Raises ValueError for an unknown id; eval files are held to the known ones where they are read.
    """
    if isinstance(ref, Persona):
        return ref
    if (persona := PERSONAS.get(ref)) is not None:
        return persona
    near = difflib.get_close_matches(ref.upper(), PERSONAS, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"the built-in ones are {', '.join(PERSONAS)}"
    raise ValueError(f"no persona has the id `{ref}`: {hint}")


def filled(text: str, values: Mapping[str, str]) -> str:
    """``{{ name }}`` replaced by its value, in one pass: what a value contains is never read as a placeholder.

    A placeholder without a value stays as it is.
    """
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: values.get(match[1], match[0]), text)
