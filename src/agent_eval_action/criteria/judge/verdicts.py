"""Criteria whose turns are judged valid or not: final_response_match_v2 and per_turn_user_simulator_quality_v1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from agent_eval_action.criteria.base import Sample, TurnCriterion
from agent_eval_action.criteria.judge.base import JudgedCriterion, VerdictAnswer, VoteResult, as_json, ask_about, vote
from agent_eval_action.criteria.judge.grounding_context import answer_text
from agent_eval_action.diagnostics.reader import shorten
from agent_eval_action.results.evalset import (
    ConversationScenario,
    Invocation,
    default_behaviors,
    fill_placeholders,
    find_persona,
    personas_version,
)
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus, TurnScore


class VerdictCriterion(JudgedCriterion, TurnCriterion):
    """A judged criterion whose turns are 1 where most samples say yes, else 0."""

    async def vote(self, sample: Sample, texts: Mapping[str, str]) -> VoteResult:
        """Whether most samples say yes to these texts."""
        question = ask_about(self.prompt_names[0], texts, VerdictAnswer, lambda answer: answer)
        return await vote(self.judge(sample), question)

    def score_vote(self, turn: int, result: VoteResult) -> TurnScore:
        """The score of a turn by its vote."""
        if result.verdict is None:
            return self.unscored(turn, result.undecided, votes=result.votes)
        return TurnScore(
            turn=turn,
            score=float(result.verdict),
            reason=result.sentence("valid" if result.verdict else "invalid"),
            votes=result.votes,
            cast=result.cast,
            details={"rationale": result.rationale},
        )


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
        return self.score_vote(turn, await self.vote(sample, texts))


class SimulatorQuality(VerdictCriterion):
    """ADK's share of the user's turns that are valid; ending at the wrong moment makes the last one invalid.

    A turn without a verdict voids the case. ADK counts it 0, so that an outage of the judge looks like a bad user.
    """

    name: ClassVar[str] = "per_turn_user_simulator_quality_v1"
    prompt_names: ClassVar[tuple[str, ...]] = ("simulator_turn",)

    stop_signal: str = Field(default="</finished>", min_length=1)

    def version(self) -> str:
        return f"{super().version()}+personas-{personas_version()}"

    def refuse(self, sample: Sample) -> CriterionScore | None:
        if sample.case.conversation_scenario is None:
            reason = f"{self.name} judges simulated users, and the user of this case has fixed lines"
            return self.no_score(ScoreStatus.NOT_APPLICABLE, reason)
        return super().refuse(sample)

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        sent = sample.actual[turn].user_content.text
        if turn > 0:
            return self.score_vote(turn, await self._vote(sample, sent, sample.actual[:turn]))
        wanted = _scenario(sample).starting_prompt
        if sent.strip() == wanted.strip():
            return TurnScore(turn=0, score=1.0, reason="it is the starting prompt")
        reason = f"it is {shorten(sent)} and not the starting prompt {shorten(wanted)}"
        return TurnScore(turn=0, score=0.0, reason=reason)

    async def aggregate(self, sample: Sample, turns: Sequence[TurnScore]) -> CriterionScore:
        if any(turn.score is None for turn in turns):
            return await super().aggregate(sample, turns)
        ending = await self._vote(sample, self.stop_signal, sample.actual)
        details = {"ending": {"votes": ending.votes.model_dump(mode="json"), "rationale": ending.rationale}}
        if ending.verdict is None:
            reason = f"whether the conversation ended at the right moment: {ending.undecided}"
            return self.no_score(ScoreStatus.ERROR, reason, turns=tuple(turns), details=details)
        if not ending.verdict:  # the last turn's own verdict is in its details
            last = turns[-1]
            wrong = ending.sentence("the conversation ended at the wrong moment,")
            changed = {
                "score": 0.0,
                "reason": "; ".join([*([] if last.score else [last.reason]), wrong]),
                "details": {**last.details, "own_score": last.score, "ending": ending.rationale},
            }
            turns = (*turns[:-1], last.model_copy(update=changed))
        return (await super().aggregate(sample, turns)).model_copy(update={"details": details})

    async def _vote(self, sample: Sample, sent: str, history: Iterable[Invocation]) -> VoteResult:
        """Whether this is what the user had to say after these turns; the stop signal alone ends the conversation."""
        scenario, messages = _scenario(sample), []
        for turn in history:
            messages.append({"user": turn.user_content.text})
            if turn.final_response is not None:
                messages.append({"agent": turn.response_text})
        texts = {
            "plan": scenario.conversation_plan,
            **self._user(scenario),
            "stop_signal": self.stop_signal,
            "history": as_json(messages),
            "message": sent,
        }
        return await self.vote(sample, texts)

    def _user(self, scenario: ConversationScenario) -> dict[str, str]:
        """Who the user is. A persona's behaviours may name the plan and the stop signal, as in ADK."""
        values = {"stop_signal": self.stop_signal, "conversation_plan": scenario.conversation_plan}
        persona = find_persona(scenario.user_persona) if scenario.user_persona is not None else None
        rules = [
            {
                "name": fill_placeholders(behavior.name, values),
                "description": fill_placeholders(behavior.description, values),
                "violations": [fill_placeholders(rubric, values) for rubric in behavior.violation_rubrics],
            }
            for behavior in (persona.behaviors if persona else default_behaviors())
        ]
        return {**({"persona": persona.description} if persona else {}), "behaviors": as_json(rules)}


def _scenario(sample: Sample) -> ConversationScenario:
    assert sample.case.conversation_scenario is not None  # noqa: S101 - see ``SimulatorQuality.refuse``
    return sample.case.conversation_scenario
