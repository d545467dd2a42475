"""final_response_match_v2: a judge says whether each answer says what the reference says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from agent_eval_action.criteria import prompts
from agent_eval_action.criteria.base import Sample, TurnCriterion
from agent_eval_action.criteria.deterministic.paired import worst_reasons
from agent_eval_action.criteria.judge.base import (
    NO_MODEL,
    VERDICT_SCHEMA,
    JudgedCriterion,
    JudgeVerdict,
    Question,
    VoteResult,
    describe_undecided,
    excerpt,
    message,
    read_verdict,
    vote,
)
from agent_eval_action.criteria.judge.grounding_context import answer_text
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus, TurnScore

_PROMPT = "final_response_match"


class FinalResponseMatch(JudgedCriterion, TurnCriterion):
    """ADK's final_response_match_v2: a turn is 1 when most samples call it valid, else 0; a case the mean."""

    name: ClassVar[str] = "final_response_match_v2"
    needs_reference: ClassVar[bool] = True
    prompt_names: ClassVar[tuple[str, ...]] = (_PROMPT,)

    include_intermediate_responses_in_final: bool = False

    def refusal(self, sample: Sample) -> CriterionScore | None:
        if sample.case.conversation is None:
            return self.no_score(
                ScoreStatus.NOT_APPLICABLE,
                f"{self.name} needs reference answers, and the user of this case is simulated",
            )
        return None if self.judge(sample) else self.no_score(ScoreStatus.ERROR, NO_MODEL)

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        judge = self.judge(sample)
        if judge is None:
            return TurnScore(turn=turn, status=ScoreStatus.ERROR, reason=NO_MODEL)
        return _scored(turn, await vote(judge, self.question(sample, turn)))

    def question(self, sample: Sample, turn: int) -> Question[JudgeVerdict]:
        """What the judge is asked about one turn."""
        expected, actual = sample.case.turns[turn], sample.actual[turn]
        whole = self.include_intermediate_responses_in_final
        prompt = prompts.load(_PROMPT)
        texts = {
            "user_prompt": expected.user_content.text,
            "reference": answer_text(expected, intermediate=whole),
            "answer": answer_text(actual, intermediate=whole),
        }
        return Question(prompt.text, message(texts), VERDICT_SCHEMA, prompt.version, read_verdict)

    async def over_turns(self, sample: Sample, turns: Sequence[TurnScore]) -> CriterionScore:
        del sample
        unscored = [turn for turn in turns if turn.status is not ScoreStatus.SCORED]
        if unscored:
            # ADK takes the mean of the others, so that an outage can pass a case.
            return self.no_score(ScoreStatus.ERROR, worst_reasons(unscored), turns=tuple(turns))
        invalid = [turn for turn in turns if not turn.score]
        score = (len(turns) - len(invalid)) / len(turns)
        return self.result(score, reason=worst_reasons(invalid or turns), turns=tuple(turns))


def _scored(turn: int, ballot: VoteResult) -> TurnScore:
    votes = ballot.votes
    if ballot.verdict is None:
        return TurnScore(turn=turn, status=ScoreStatus.ERROR, reason=describe_undecided(ballot), votes=votes)
    word, agreeing = ("valid", votes.yes) if ballot.verdict else ("invalid", votes.no)
    reason = f"{word} {agreeing} of {votes.yes + votes.no}: {excerpt(ballot.rationale) or 'no reason given'}"
    details = {"rationale": ballot.rationale}
    return TurnScore(turn=turn, score=float(ballot.verdict), reason=reason, votes=votes, details=details)
