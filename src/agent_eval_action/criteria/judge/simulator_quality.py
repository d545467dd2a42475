"""per_turn_user_simulator_quality_v1: whether the simulated user said what the scenario has it say, turn by turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from pydantic import Field

from agent_eval_action.criteria.base import Sample
from agent_eval_action.criteria.judge.base import VerdictCriterion, VoteResult, as_json, verdict_question, vote
from agent_eval_action.diagnostics.reader import shorten
from agent_eval_action.results.evalset import ConversationScenario, Invocation
from agent_eval_action.results.personas import default_behaviors, fill_placeholders, find_persona, personas_version
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus, TurnScore


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
        if turn == 0:
            return _score_first_turn(sent, _scenario(sample).starting_prompt)
        return self.score_vote(turn, await self._vote(sample, sent, sample.actual[:turn]))

    async def aggregate(self, sample: Sample, turns: Sequence[TurnScore]) -> CriterionScore:
        if any(turn.score is None for turn in turns):
            return await super().aggregate(sample, turns)
        ending = await self._vote(sample, self.stop_signal, sample.actual)
        details = {"ending": {"votes": ending.votes.model_dump(mode="json"), "rationale": ending.rationale}}
        if ending.verdict is None:
            reason = f"whether the conversation ended at the right moment: {ending.undecided}"
            return self.no_score(ScoreStatus.ERROR, reason, turns=tuple(turns), details=details)
        counted = turns if ending.verdict else (*turns[:-1], _ended_wrongly(turns[-1], ending))
        return (await super().aggregate(sample, counted)).model_copy(update={"details": details})

    async def _vote(self, sample: Sample, sent: str, history: Iterable[Invocation]) -> VoteResult:
        """Whether this is what the user had to say after these turns; the stop signal alone ends the conversation."""
        scenario = _scenario(sample)
        texts = {
            "plan": scenario.conversation_plan,
            **self._user(scenario),
            "stop_signal": self.stop_signal,
            "history": as_json(list(_messages(history))),
            "message": sent,
        }
        return await vote(self.judge(sample), verdict_question(self.prompt_names[0], texts))

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


def _messages(turns: Iterable[Invocation]) -> Iterable[dict[str, Any]]:
    for turn in turns:
        yield {"user": turn.user_content.text}
        if turn.final_response is not None:
            yield {"agent": turn.response_text}


def _score_first_turn(sent: str, wanted: str) -> TurnScore:
    if sent.strip() == wanted.strip():
        return TurnScore(turn=0, score=1.0, reason="it is the starting prompt")
    reason = f"it is {shorten(sent)} and not the starting prompt {shorten(wanted)}"
    return TurnScore(turn=0, score=0.0, reason=reason)


def _ended_wrongly(last: TurnScore, ending: VoteResult) -> TurnScore:
    """The last turn, counted as invalid because of what came after it; its own verdict is in the details."""
    own = [] if last.score else [last.reason]
    reason = "; ".join([*own, ending.sentence("the conversation ended at the wrong moment,")])
    details = {**last.details, "own_score": last.score, "ending": ending.rationale}
    return last.model_copy(update={"score": 0.0, "reason": reason, "details": details})
