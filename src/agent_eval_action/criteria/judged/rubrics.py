"""The three rubric_based_* criteria: yes/no properties that a judge decides, turn by turn or over the conversation."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from agent_eval_action.criteria import prompts
from agent_eval_action.criteria.base import Sample, TurnwiseCriterion
from agent_eval_action.criteria.deterministic.paired import worst_reasons
from agent_eval_action.criteria.judge import as_json
from agent_eval_action.criteria.judged import evidence, rubric_votes
from agent_eval_action.criteria.judged.base import NO_MODEL, JudgedCriterion
from agent_eval_action.criteria.judged.rubric_choice import effective, fault
from agent_eval_action.model.evalset import EvalCase, Invocation, Rubric
from agent_eval_action.model.result import CriterionScore, ScoreStatus, TurnScore
from agent_eval_action.source import did_you_mean

Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class RubricCriterion(JudgedCriterion, abc.ABC):
    """Options and scores they share. ``rubric_type`` is the type of the rubrics in eval files that belong to it.

    ``weights``: of a rubric by its id, 1 where none is given (ours; ADK weighs all alike).
    """

    rubric_type: ClassVar[str]

    rubrics: tuple[Rubric, ...] = ()
    weights: dict[str, Weight] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if problem := fault(self.rubrics):
            raise ValueError(problem)
        return self

    def check(self, case: EvalCase) -> str:
        """Why this case cannot be scored, known from the files alone; "" when it can."""
        for turn in self.judged_turns(max(len(case.turns), 1)):
            try:
                effective(self.rubrics, case, turn, self.rubric_type)
            except ValueError as error:
                place = f"turn {turn + 1}: " if len(case.turns) > 1 else ""
                return f"{place}{error}"
        return ""

    def check_cases(self, cases: Iterable[EvalCase]) -> str:
        """What is wrong with the options beside the cases they are for; "" if nothing. A weight must be of a rubric."""
        written = [one for case in cases for one in (*(case.rubrics or ()), *_of_turns(case))]
        known = {one.rubric_id for one in written if one.type == self.rubric_type}
        known |= {one.rubric_id for one in self.rubrics}
        unknown = next((name for name in self.weights if name not in known), None)
        if unknown is None:
            return ""
        hint = did_you_mean(unknown, known)
        more = f"; {hint}" if hint else ""
        return f"`weights` names `{unknown}`, which is no rubric of the criterion or of a case{more}"

    def refusal(self, sample: Sample) -> CriterionScore | None:
        """The result without a score when nothing of this case can be scored."""
        reason = self.check(sample.case) or ("" if self.judge(sample) else NO_MODEL)
        return self.no_score(ScoreStatus.ERROR, reason) if reason else None

    def judged_turns(self, turns: int) -> Sequence[int]:
        """Which of so many turns are judged."""
        return range(turns)

    @abc.abstractmethod
    def texts(self, turns: Sequence[Invocation]) -> Mapping[str, str]:
        """What the judge sees beside the rubrics, by the names its prompt uses; the last turn is the one judged."""

    async def judged(self, sample: Sample, turn: int) -> TurnScore:
        """The score of one turn."""
        judge = self.judge(sample)
        if judge is None:
            return TurnScore(turn=turn, status=ScoreStatus.ERROR, reason=NO_MODEL)
        rubrics = effective(self.rubrics, sample.case, turn, self.rubric_type)
        prompt = prompts.load(self.prompt_names[0])
        asked = rubric_votes.question(prompt, self.texts(sample.actual[: turn + 1]), rubrics)
        return await rubric_votes.judged_turn(judge, asked, turn, rubrics, self.weights)

    def over(self, turns: Sequence[TurnScore]) -> CriterionScore:
        """The mean over the rubrics of all turns: as in ADK a turn with more rubrics weighs more."""
        fields = {"turns": tuple(turns), "rubrics": rubric_votes.over_turns(turns)}
        unscored = [turn for turn in turns if turn.status is not ScoreStatus.SCORED]
        score = rubric_votes.weighted_mean(one for turn in turns for one in turn.rubrics)
        if unscored or score is None:
            return self.no_score(ScoreStatus.ERROR, worst_reasons(unscored), **fields)
        failed = [turn for turn in turns if turn.score is not None and turn.score < 1]
        return self.result(score, reason=worst_reasons(failed or turns), **fields)


def _of_turns(case: EvalCase) -> Iterable[Rubric]:
    return (rubric for turn in case.turns for rubric in turn.rubrics or ())


class TurnRubrics(RubricCriterion, TurnwiseCriterion, abc.ABC):
    """Each turn by its own rubrics, where ADK reads every answer by those of the last turn."""

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        return await self.judged(sample, turn)

    async def over_turns(self, sample: Sample, turns: Sequence[TurnScore]) -> CriterionScore:
        del sample
        return self.over(turns)


class FinalResponseQuality(TurnRubrics):
    """ADK's rubric_based_final_response_quality_v1: the answer, held against what is known from tools and sources."""

    name: ClassVar[str] = "rubric_based_final_response_quality_v1"
    rubric_type: ClassVar[str] = "FINAL_RESPONSE_QUALITY"
    prompt_names: ClassVar[tuple[str, ...]] = ("rubrics_final_response",)

    include_intermediate_responses_in_final: bool = False

    def texts(self, turns: Sequence[Invocation]) -> Mapping[str, str]:
        turn = turns[-1]
        return {
            "instructions": evidence.first_instructions(turn),
            "tools": as_json(evidence.tools(turn)),
            "user_prompt": turn.user_content.text,
            "tool_calls": as_json(evidence.calls_with_results(turn)),
            "grounding": as_json(evidence.sources(turn)),
            "answer": evidence.answer_text(turn, intermediate=self.include_intermediate_responses_in_final),
        }


class ToolUseQuality(TurnRubrics):
    """ADK's rubric_based_tool_use_quality_v1: the calls of a turn."""

    name: ClassVar[str] = "rubric_based_tool_use_quality_v1"
    rubric_type: ClassVar[str] = "TOOL_USE_QUALITY"
    prompt_names: ClassVar[tuple[str, ...]] = ("rubrics_tool_use",)

    def texts(self, turns: Sequence[Invocation]) -> Mapping[str, str]:
        turn = turns[-1]
        return {
            "tools": as_json(evidence.tools(turn)),
            "user_prompt": turn.user_content.text,
            "tool_calls": as_json(evidence.calls_with_results(turn)),
        }


class TrajectoryQuality(RubricCriterion):
    """ADK's rubric_based_multi_turn_trajectory_quality_v1: the whole conversation, judged once, at its last turn."""

    name: ClassVar[str] = "rubric_based_multi_turn_trajectory_quality_v1"
    rubric_type: ClassVar[str] = "TRAJECTORY_QUALITY"
    prompt_names: ClassVar[tuple[str, ...]] = ("rubrics_conversation",)

    def judged_turns(self, turns: int) -> Sequence[int]:
        return (turns - 1,)

    def texts(self, turns: Sequence[Invocation]) -> Mapping[str, str]:
        return {
            "instructions": as_json(evidence.all_instructions(turns)),
            "tools": as_json(evidence.tools(*turns)),
            "conversation": as_json(evidence.conversation(turns)),
        }

    async def score(self, sample: Sample) -> CriterionScore:
        if refused := self.refusal(sample):
            return refused
        if reason := sample.unmeasurable():
            return self.no_score(ScoreStatus.ERROR, reason)
        return self.over([await self.judged(sample, len(sample.actual) - 1)])
