"""final_response_match_v2: a judge says whether each answer says what the reference says."""

from __future__ import annotations

from typing import ClassVar

from agent_eval_action.criteria.base import Sample
from agent_eval_action.criteria.judge.base import VerdictCriterion, verdict_question, vote
from agent_eval_action.criteria.judge.grounding_context import answer_text
from agent_eval_action.results.run_result import TurnScore


class FinalResponseMatch(VerdictCriterion):
    """ADK's final_response_match_v2: a turn is 1 when most samples call it valid, else 0; a case the mean."""

    name: ClassVar[str] = "final_response_match_v2"
    needs_reference: ClassVar[bool] = True
    prompt_names: ClassVar[tuple[str, ...]] = ("final_response_match",)

    include_intermediate_responses_in_final: bool = False

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        expected, actual = sample.case.turns[turn], sample.actual[turn]
        whole = self.include_intermediate_responses_in_final
        texts = {
            "user_prompt": expected.user_content.text,
            "reference": answer_text(expected, intermediate=whole),
            "answer": answer_text(actual, intermediate=whole),
        }
        return self.score_vote(turn, await vote(self.judge(sample), verdict_question(self.prompt_names[0], texts)))
