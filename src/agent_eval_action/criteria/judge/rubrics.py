"""Which rubrics a turn is judged by: the criterion's own, then those of its type that the case and the turn have."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from agent_eval_action.criteria import prompts
from agent_eval_action.criteria.base import Sample, TurnCriterion
from agent_eval_action.criteria.deterministic.paired import worst_reasons
from agent_eval_action.criteria.judge import grounding_context
from agent_eval_action.criteria.judge.base import (
    NO_MODEL,
    Judge,
    JudgedCriterion,
    JudgeVerdict,
    PartialAnswer,
    Question,
    VoteResult,
    as_json,
    describe_undecided,
    excerpt,
    message,
    vote_each,
)
from agent_eval_action.criteria.prompts import Prompt
from agent_eval_action.diagnostics.reader import did_you_mean
from agent_eval_action.results.evalset import EvalCase, Invocation, Rubric
from agent_eval_action.results.run_result import CriterionScore, RubricScore, ScoreStatus, TurnScore, Votes


def select_rubrics(own: Sequence[Rubric], case: EvalCase, turn: int, kind: str) -> tuple[Rubric, ...]:
    """The rubrics of one turn, in order. Those of a case without a type belong to no criterion, as in ADK.

    Raises ValueError, in one sentence, when there are none, when an id is there twice, or when one says nothing.
    """
    of_turn = case.turns[turn].rubrics if turn < len(case.turns) else None
    written = [*(case.rubrics or ()), *(of_turn or ())]
    chosen = (*own, *(rubric for rubric in written if rubric.type == kind))
    if problem := find_rubric_problem(chosen):
        raise ValueError(problem)
    if not chosen:
        others = f" (of type {kind}; there are {len(written)} of other types or of none)" if written else ""
        raise ValueError(f"there is no rubric to judge by: neither the criterion nor the case has one{others}")
    return chosen


def find_rubric_problem(rubrics: Iterable[Rubric]) -> str:
    """What is wrong with a list of rubrics, "" if nothing is."""
    seen: set[str] = set()
    for rubric in rubrics:
        if rubric.rubric_id in seen:
            return f"rubric `{rubric.rubric_id}` is there twice"
        seen.add(rubric.rubric_id)
        if not (rubric.rubric_content.text_property or "").strip():
            return f"rubric `{rubric.rubric_id}` has no text"
    return ""


Weights = Mapping[str, float]


def question(
    prompt: Prompt, texts: Mapping[str, str], rubrics: Sequence[Rubric]
) -> Question[Mapping[str, JudgeVerdict]]:
    """All rubrics of a turn in one question; the answer is by rubric id.

    Rubrics go by a key of ours (R1, R2, …): an id of the user's can be anything, and a model has to copy it.
    """
    ids = {f"R{number}": rubric.rubric_id for number, rubric in enumerate(rubrics, 1)}
    listed = [
        {"rubric": key, "property": rubric.rubric_content.text_property}
        for key, rubric in zip(ids, rubrics, strict=True)
    ]
    said = message({**texts, "rubrics": as_json(listed)})
    return Question(prompt.text, said, _schema(list(ids)), prompt.version, lambda answer: _read(answer, ids))


def _schema(keys: list[str]) -> dict[str, Any]:
    entry = {
        "type": "object",
        "properties": {
            "rubric": {"type": "string", "enum": keys},
            "rationale": {"type": "string", "description": "Why, in one or two sentences."},
            "verdict": {"type": "string", "enum": ["yes", "no"]},
        },
        "required": ["rubric", "rationale", "verdict"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {"verdicts": {"type": "array", "items": entry}},
        "required": ["verdicts"],
        "additionalProperties": False,
    }


def _read(answer: Mapping[str, Any], ids: Mapping[str, str]) -> Mapping[str, JudgeVerdict]:
    found: dict[str, JudgeVerdict] = {}
    for entry in answer["verdicts"]:
        rubric = ids[entry["rubric"]]
        if rubric in found:
            raise ValueError(f"{entry['rubric']} has more than one verdict")
        found[rubric] = JudgeVerdict(entry["verdict"] == "yes", entry["rationale"].strip())
    if missing := [key for key, rubric in ids.items() if rubric not in found]:
        raise PartialAnswer(f"there is no verdict for {', '.join(missing)}", found)
    return found


async def judged_turn(
    judge: Judge, asked: Question[Mapping[str, JudgeVerdict]], turn: int, rubrics: Sequence[Rubric], weights: Weights
) -> TurnScore:
    """The score of one turn. A rubric without a verdict voids it: leaving it out of the mean could hide a failure."""
    ballots = await vote_each(judge, asked, [rubric.rubric_id for rubric in rubrics])
    scores = tuple(_scored(rubric, ballots[rubric.rubric_id], weights) for rubric in rubrics)
    open_ = [f"“{one.rubric_id}”: {describe_undecided(ballots[one.rubric_id])}" for one in scores if one.score is None]
    if open_:
        rest = len(open_) - 1
        more = f"; and {rest} more {'rubric' if rest == 1 else 'rubrics'}" if rest else ""
        return TurnScore(turn=turn, status=ScoreStatus.ERROR, reason=open_[0] + more, rubrics=scores)
    return TurnScore(turn=turn, score=weighted_mean(scores), reason=reason(scores), rubrics=scores)


def _scored(rubric: Rubric, ballot: VoteResult, weights: Weights) -> RubricScore:
    return RubricScore(
        rubric_id=rubric.rubric_id,
        text=rubric.rubric_content.text_property or "",
        score=None if ballot.verdict is None else float(ballot.verdict),
        rationale=ballot.rationale,
        votes=ballot.votes,
        weight=weights.get(rubric.rubric_id, 1.0),
    )


def weighted_mean(scores: Iterable[RubricScore]) -> float | None:
    """Exact, then rounded once, as ADK's mean is: the last bit decides at a threshold. None without a score."""
    scored = [(Fraction(one.score), Fraction(one.weight)) for one in scores if one.score is not None]
    weight = sum(each for _, each in scored)
    return float(sum(score * each for score, each in scored) / weight) if weight else None


def over_turns(turns: Sequence[TurnScore]) -> tuple[RubricScore, ...]:
    """Each rubric over the turns it was judged in: its mean, all its votes, and where it failed first, why."""
    by_id: dict[str, list[tuple[int, RubricScore]]] = {}
    for turn in turns:
        for one in turn.rubrics:
            by_id.setdefault(one.rubric_id, []).append((turn.turn, one))
    return tuple(_merged(found, several=len(turns) > 1) for found in by_id.values())


def _merged(found: Sequence[tuple[int, RubricScore]], *, several: bool) -> RubricScore:
    turn, shown = next(((turn, one) for turn, one in found if one.score == 0), found[0])
    every = [one.votes for _, one in found]
    votes = Votes(
        yes=sum(one.yes for one in every), no=sum(one.no for one in every), left_out=sum(one.left_out for one in every)
    )
    rationale = f"turn {turn + 1}: {shown.rationale}" if several and shown.rationale else shown.rationale
    score = weighted_mean(one for _, one in found)
    return shown.model_copy(update={"score": score, "rationale": rationale, "votes": votes})


def reason(scores: Sequence[RubricScore]) -> str:
    """What was not met first, each with its votes and why; else that all is well."""
    failed = [one for one in scores if not one.score]
    if not failed:
        return "the one rubric is met" if len(scores) == 1 else f"all {len(scores)} rubrics are met"
    told = "; ".join(
        f"“{one.rubric_id}” no {one.votes.no} of {one.votes.yes + one.votes.no}: {excerpt(one.rationale)}"
        for one in failed[:3]
    )
    more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""  # noqa: PLR2004 - as many as were told
    return f"{len(failed)} of {len(scores)} rubrics not met: {told}{more}"


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
        if problem := find_rubric_problem(self.rubrics):
            raise ValueError(problem)
        return self

    def check(self, case: EvalCase) -> str:
        """Why this case cannot be scored, known from the files alone; "" when it can."""
        for turn in self.judged_turns(max(len(case.turns), 1)):
            try:
                select_rubrics(self.rubrics, case, turn, self.rubric_type)
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
        rubrics = select_rubrics(self.rubrics, sample.case, turn, self.rubric_type)
        prompt = prompts.load(self.prompt_names[0])
        asked = question(prompt, self.texts(sample.actual[: turn + 1]), rubrics)
        return await judged_turn(judge, asked, turn, rubrics, self.weights)

    def over(self, turns: Sequence[TurnScore]) -> CriterionScore:
        """The mean over the rubrics of all turns: as in ADK a turn with more rubrics weighs more."""
        fields = {"turns": tuple(turns), "rubrics": over_turns(turns)}
        unscored = [turn for turn in turns if turn.status is not ScoreStatus.SCORED]
        score = weighted_mean(one for turn in turns for one in turn.rubrics)
        if unscored or score is None:
            return self.no_score(ScoreStatus.ERROR, worst_reasons(unscored), **fields)
        failed = [turn for turn in turns if turn.score is not None and turn.score < 1]
        return self.result(score, reason=worst_reasons(failed or turns), **fields)


def _of_turns(case: EvalCase) -> Iterable[Rubric]:
    return (rubric for turn in case.turns for rubric in turn.rubrics or ())


class TurnRubrics(RubricCriterion, TurnCriterion, abc.ABC):
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
            "instructions": grounding_context.first_instructions(turn),
            "tools": as_json(grounding_context.tools(turn)),
            "user_prompt": turn.user_content.text,
            "tool_calls": as_json(grounding_context.calls_with_results(turn)),
            "grounding": as_json(grounding_context.sources(turn)),
            "answer": grounding_context.answer_text(turn, intermediate=self.include_intermediate_responses_in_final),
        }


class ToolUseQuality(TurnRubrics):
    """ADK's rubric_based_tool_use_quality_v1: the calls of a turn."""

    name: ClassVar[str] = "rubric_based_tool_use_quality_v1"
    rubric_type: ClassVar[str] = "TOOL_USE_QUALITY"
    prompt_names: ClassVar[tuple[str, ...]] = ("rubrics_tool_use",)

    def texts(self, turns: Sequence[Invocation]) -> Mapping[str, str]:
        turn = turns[-1]
        return {
            "tools": as_json(grounding_context.tools(turn)),
            "user_prompt": turn.user_content.text,
            "tool_calls": as_json(grounding_context.calls_with_results(turn)),
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
            "instructions": as_json(grounding_context.all_instructions(turns)),
            "tools": as_json(grounding_context.tools(*turns)),
            "conversation": as_json(grounding_context.conversation(turns)),
        }

    async def score(self, sample: Sample) -> CriterionScore:
        if refused := self.refusal(sample):
            return refused
        if reason := sample.unmeasurable():
            return self.no_score(ScoreStatus.ERROR, reason)
        return self.over([await self.judged(sample, len(sample.actual) - 1)])
