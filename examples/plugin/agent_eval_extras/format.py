"""A format of eval files: `{"questions": [{"ask": "...", "expect": "..."}]}`, each question a case of one turn."""

from __future__ import annotations

from typing import Any

from agent_eval_action.formats.base import Format, Reading
from agent_eval_action.results.evalset import Content, EvalCase, EvalSet, Invocation, Part


def _is_questions(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("questions"), list)


def _read(reading: Reading) -> EvalSet | None:
    cases = []
    for index, question in enumerate(reading.value["questions"]):
        match question:
            case {"ask": str(ask), "expect": str(expect)}:
                turn = Invocation(user_content=_text("user", ask), final_response=_text("model", expect))
                cases.append(EvalCase(eval_id=f"question_{index + 1}", conversation=(turn,)))
            case _:
                reading.error(("questions", index), "a question has the texts `ask` and `expect`")
    return None if reading.errors else EvalSet(eval_set_id=reading.name, eval_cases=tuple(cases))


def _text(role: str, text: str) -> Content:
    return Content(role=role, parts=(Part(text=text),))


QUESTIONS = Format("questions", _is_questions, _read)
