"""per_turn_user_simulator_quality_v1: whether the simulated user said what the scenario has it say, turn by turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from pydantic import Field

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
    as_json,
    describe_undecided,
    excerpt,
    message,
    read_verdict,
    vote,
)
from agent_eval_action.diagnostics.reader import shorten
from agent_eval_action.results.evalset import ConversationScenario, Invocation
from agent_eval_action.results.personas import default_behaviors, fill_placeholders, find_persona, personas_version
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus, TurnScore, Votes

_PROMPT = "simulator_turn"
_FIXED = "judges simulated users, and the user of this case has fixed lines"


class SimulatorQuality(JudgedCriterion, TurnCriterion):
    """ADK's share of the user's turns that are valid; ending at the wrong moment makes the last one invalid."""

    name: ClassVar[str] = "per_turn_user_simulator_quality_v1"
    prompt_names: ClassVar[tuple[str, ...]] = (_PROMPT,)

    stop_signal: str = Field(default="</finished>", min_length=1)

    def version(self) -> str:
        return f"{super().version()}+personas-{personas_version()}"

    def refusal(self, sample: Sample) -> CriterionScore | None:
        if sample.case.conversation_scenario is None:
            return self.no_score(ScoreStatus.NOT_APPLICABLE, f"{self.name} {_FIXED}")
        return None if self.judge(sample) else self.no_score(ScoreStatus.ERROR, NO_MODEL)

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        scenario = sample.case.conversation_scenario
        if scenario is None:
            return TurnScore(turn=turn, status=ScoreStatus.NOT_APPLICABLE, reason=f"{self.name} {_FIXED}")
        said = sample.actual[turn].user_content.text
        if turn == 0:
            return _first_turn(said, scenario.starting_prompt)
        return _later_turn(turn, await self._vote(sample, scenario, said, sample.actual[:turn]))

    async def over_turns(self, sample: Sample, turns: Sequence[TurnScore]) -> CriterionScore:
        scenario = sample.case.conversation_scenario
        lost = [turn for turn in turns if turn.status is not ScoreStatus.SCORED]
        if lost or scenario is None:
            # ADK counts them 0, so that an outage of the judge looks like a bad user.
            return self.no_score(ScoreStatus.ERROR, worst_reasons(lost), turns=tuple(turns))
        ending = await self._vote(sample, scenario, self.stop_signal, sample.actual)
        details = {"ending": {"votes": ending.votes.model_dump(mode="json"), "rationale": ending.rationale}}
        if ending.verdict is None:
            reason = f"whether the conversation ended at the right moment: {describe_undecided(ending)}"
            return self.no_score(ScoreStatus.ERROR, reason, turns=tuple(turns), details=details)
        counted = tuple(turns) if ending.verdict else (*turns[:-1], _ended_wrongly(turns[-1], ending))
        invalid = [turn for turn in counted if not turn.score]
        score = (len(counted) - len(invalid)) / len(counted)
        return self.result(score, reason=worst_reasons(invalid or counted), turns=counted, details=details)

    async def _vote(
        self, sample: Sample, scenario: ConversationScenario, said: str, history: Iterable[Invocation]
    ) -> VoteResult:
        """Whether this is what the user had to say after these turns."""
        judge = self.judge(sample)
        if judge is None:
            return VoteResult(Votes(), None, reason=NO_MODEL)
        return await vote(judge, self.question(scenario, said, history))

    def question(
        self, scenario: ConversationScenario, said: str, history: Iterable[Invocation]
    ) -> Question[JudgeVerdict]:
        """What the judge is asked about one message; the stop signal alone is the end of the conversation."""
        prompt = prompts.load(_PROMPT)
        texts = {
            "plan": scenario.conversation_plan,
            **self._user(scenario),
            "stop_signal": self.stop_signal,
            "history": as_json(list(_said(history))),
            "message": said,
        }
        return Question(prompt.text, message(texts), VERDICT_SCHEMA, prompt.version, read_verdict)

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


def _said(turns: Iterable[Invocation]) -> Iterable[dict[str, Any]]:
    for turn in turns:
        yield {"user": turn.user_content.text}
        if turn.final_response is not None:
            yield {"agent": turn.response_text}


def _first_turn(said: str, wanted: str) -> TurnScore:
    if said.strip() == wanted.strip():
        return TurnScore(turn=0, score=1.0, reason="it is the starting prompt")
    reason = f"it is {shorten(said)} and not the starting prompt {shorten(wanted)}"
    return TurnScore(turn=0, score=0.0, reason=reason)


def _later_turn(turn: int, ballot: VoteResult) -> TurnScore:
    votes = ballot.votes
    if ballot.verdict is None:
        return TurnScore(turn=turn, status=ScoreStatus.ERROR, reason=describe_undecided(ballot), votes=votes)
    return TurnScore(
        turn=turn,
        score=float(ballot.verdict),
        reason=_verdict("valid" if ballot.verdict else "invalid", ballot),
        votes=votes,
        details={"rationale": ballot.rationale},
    )


def _ended_wrongly(last: TurnScore, ending: VoteResult) -> TurnScore:
    """The last turn, counted as invalid because of what came after it; its own verdict is in the details."""
    own = [] if last.score else [last.reason]
    reason = "; ".join([*own, _verdict("the conversation ended at the wrong moment,", ending)])
    details = {**last.details, "own_score": last.score, "ending": ending.rationale}
    return last.model_copy(update={"score": 0.0, "reason": reason, "details": details})


def _verdict(word: str, ballot: VoteResult) -> str:
    votes = ballot.votes
    agreeing = votes.yes if ballot.verdict else votes.no
    return f"{word} {agreeing} of {votes.yes + votes.no}: {excerpt(ballot.rationale) or 'no reason given'}"
