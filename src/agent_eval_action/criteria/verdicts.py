"""Criteria with yes/no verdicts, on whole turns or on rubrics (of the criterion, the case and the turn).

Also what a judge sees of a turn: texts, calls with results, instructions, tools, sources.
"""

from __future__ import annotations

import abc
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, create_model, model_validator

from agent_eval_action.criteria.base import Sample, TurnCriterion, worst_reasons
from agent_eval_action.criteria.judge import (
    Answer,
    JudgedCriterion,
    PartialAnswer,
    Poll,
    Question,
    VerdictAnswer,
    as_json,
    ask_about,
    vote,
    vote_each,
)
from agent_eval_action.diagnostics.reader import did_you_mean, plural, shorten
from agent_eval_action.results.evalset import (
    AgentDetails,
    Content,
    ConversationScenario,
    EvalCase,
    FunctionCall,
    FunctionResponse,
    IntermediateData,
    Invocation,
    InvocationEvent,
    InvocationEvents,
    Rubric,
    default_behaviors,
    fill_placeholders,
    find_persona,
    personas_version,
)
from agent_eval_action.results.findings import excerpt
from agent_eval_action.results.run_result import CriterionScore, RubricScore, ScoreStatus, TurnScore, Votes

_SHOWN = 3
_VERDICT_FIELDS: Final[Any] = {name: (field.annotation, field) for name, field in VerdictAnswer.model_fields.items()}

Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Step = dict[str, Any]


def answer_text(turn: Invocation, *, intermediate: bool = False) -> str:
    """The final response; with ``intermediate``, preceded by the earlier texts, one per line."""
    before = [text for _, text in _texts(turn)] if intermediate else []
    return "\n".join(text for text in (*before, turn.response_text) if text)


def calls_with_results(turn: Invocation) -> list[Step]:
    """Every call in order with its response, or None.

    They are paired by id; without ids, by name and order (ADK gives all of these the last response).
    """
    by_id = {response.id: response for response in turn.tool_responses() if response.id}
    by_name: defaultdict[str | None, deque[FunctionResponse]] = defaultdict(deque)
    for response in turn.tool_responses():
        if not response.id:
            by_name[response.name].append(response)
    steps = []
    for number, call in enumerate(turn.tool_calls(), 1):
        found = by_id.get(call.id) if call.id else None
        if found is None and by_name[call.name]:
            found = by_name[call.name].popleft()
        steps.append({"step": number, **_call(call), "result": found.response if found else None})
    return steps


def _call(call: FunctionCall) -> Step:
    return {"call": call.name, "arguments": call.args or {}}


def sources(events: Iterable[InvocationEvent], author: str = "agent") -> list[Step]:
    """What the model cited from search, which no tool result contains; ``author``: the prompt's key for the agent."""
    return [
        {author: event.author, "grounding": event.grounding_metadata} for event in events if event.grounding_metadata
    ]


def first_instructions(turn: Invocation) -> str:
    """The instructions of the agent that answered first; if unknown, of the first agent listed."""
    agents = _agents([turn])
    authors = (event.author for event in turn.events)
    name = next((author for author in authors if author in agents), next(iter(agents), None))
    return agents[name].instructions if name is not None else ""


def tools(*turns: Invocation) -> dict[str, Any]:
    """The tool declarations of each agent that took part, as of its first turn."""
    return {name: agent.tool_declarations for name, agent in _agents(turns).items() if agent.tool_declarations}


def all_instructions(turns: Sequence[Invocation]) -> dict[str, Any]:
    """The instructions of each agent that took part, as of its first turn."""
    return {name: agent.instructions for name, agent in _agents(turns).items() if agent.instructions}


def _agents(turns: Sequence[Invocation]) -> dict[str, AgentDetails]:
    found: dict[str, AgentDetails] = {}
    for turn in turns:
        found = {**(turn.app_details.agent_details if turn.app_details else {}), **found}
    return found


def conversation(turns: Sequence[Invocation]) -> list[Step]:
    """Every turn, numbered from 1: the user's message, the steps, the answer."""
    return [
        {"turn": number, "user": turn.user_content.text, "steps": list(_steps(turn)), "answer": turn.response_text}
        for number, turn in enumerate(turns, 1)
    ]


def _steps(turn: Invocation) -> Iterator[Step]:
    """Events in order; hand-written turns do not place their texts among the calls, so texts come last."""
    if not isinstance(turn.intermediate_data, InvocationEvents):
        for step in calls_with_results(turn):
            yield {key: value for key, value in step.items() if key != "step"}
        for author, text in _texts(turn):
            yield {"agent": author, "said": text}
    for event in turn.events:
        for part in event.parts:
            if part.text and not part.thought:
                yield {"agent": event.author, "said": part.text}
            if part.function_call:
                yield {"agent": event.author, **_call(part.function_call)}
            if part.function_response:
                yield {"tool": part.function_response.name, "result": part.function_response.response}


def _texts(turn: Invocation) -> Iterator[tuple[str, str]]:
    """The texts before the final response, with their authors."""
    data = turn.intermediate_data
    if isinstance(data, IntermediateData):
        yield from ((author, Content(parts=parts).text) for author, parts in data.intermediate_responses)
    yield from ((event.author, event.content.text if event.content else "") for event in turn.events)


class VerdictCriterion(JudgedCriterion, TurnCriterion):
    """A judged criterion that scores a turn 1 if most samples say yes, else 0."""

    async def vote(self, sample: Sample, texts: Mapping[str, str]) -> Poll:
        question = ask_about(self.prompt_names[0], texts, VerdictAnswer, lambda answer: answer)
        return await vote(self.judge(sample), question)

    def score_vote(self, turn: int, poll: Poll) -> TurnScore:
        if poll.verdict is None:
            return self.unscored(turn, poll.undecided, votes=poll.votes)
        return TurnScore(
            turn=turn,
            score=float(poll.verdict),
            reason=poll.sentence("valid" if poll.verdict else "invalid"),
            votes=poll.votes,
            cast=poll.cast,
            details={"rationale": poll.rationale},
        )


class FinalResponseMatch(VerdictCriterion):
    """ADK's final_response_match_v2: 1 if most samples call the turn valid, else 0."""

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
    """ADK's share of valid user turns; if the conversation ended at the wrong moment, the last turn is invalid.

    A turn without a verdict leaves the case without a score. ADK counts it as 0, so a judge outage looks like a bad
    user.
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
        if not ending.verdict:  # the last turn's original score stays in its details
            last = turns[-1]
            wrong = ending.sentence("the conversation ended at the wrong moment,")
            changed = {
                "score": 0.0,
                "reason": wrong if last.score else f"{last.reason}; {wrong}",
                "details": {**last.details, "own_score": last.score, "ending": ending.rationale},
            }
            turns = (*turns[:-1], last.model_copy(update=changed))
        return (await super().aggregate(sample, turns)).model_copy(update={"details": details})

    async def _vote(self, sample: Sample, sent: str, history: Iterable[Invocation]) -> Poll:
        """Ask whether ``sent`` is right for the user after these turns; the stop signal alone ends the conversation.

        A persona's behaviours may refer to plan and stop signal, as in ADK.
        """
        scenario, messages = _scenario(sample), []
        for turn in history:
            messages.append({"user": turn.user_content.text})
            if turn.final_response is not None:
                messages.append({"agent": turn.response_text})
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
        texts = {
            "plan": scenario.conversation_plan,
            **({"persona": persona.description} if persona else {}),
            "behaviors": as_json(rules),
            "stop_signal": self.stop_signal,
            "history": as_json(messages),
            "message": sent,
        }
        return await self.vote(sample, texts)


def _scenario(sample: Sample) -> ConversationScenario:
    assert sample.case.conversation_scenario is not None  # noqa: S101 - see ``SimulatorQuality.refuse``
    return sample.case.conversation_scenario


def _require_sound(rubrics: Iterable[Rubric]) -> None:
    seen: set[str] = set()
    for rubric in rubrics:
        if rubric.rubric_id in seen:
            raise ValueError(f"rubric `{rubric.rubric_id}` is there twice")
        seen.add(rubric.rubric_id)
        if not (rubric.rubric_content.text_property or "").strip():
            raise ValueError(f"rubric `{rubric.rubric_id}` has no text")


@cache
def _answer_shape(rubrics: int) -> type[Answer]:
    """The shape of an answer with verdicts on this many rubrics, keyed R1, R2, …."""
    key: Any = Literal[tuple(f"R{number}" for number in range(1, rubrics + 1))]
    entry = create_model("RubricVerdict", __base__=Answer, rubric=(key, ...), **_VERDICT_FIELDS)
    return create_model("RubricAnswer", __base__=Answer, verdicts=(list[entry], ...))


def _question(prompt_name: str, texts: Mapping[str, str], rubrics: Sequence[Rubric]) -> Question[Any]:
    """One question with all rubrics of a turn; its result is keyed by rubric id.

    The prompt names rubrics R1, R2, …: the model has to copy the name, and users' ids can be anything.
    """
    ids = {f"R{number}": rubric.rubric_id for number, rubric in enumerate(rubrics, 1)}
    listed = [
        {"rubric": key, "property": rubric.rubric_content.text_property}
        for key, rubric in zip(ids, rubrics, strict=True)
    ]

    def read(answer: Any) -> Mapping[str, VerdictAnswer]:
        found: dict[str, VerdictAnswer] = {}
        for entry in answer.verdicts:
            if ids[entry.rubric] in found:
                raise ValueError(f"{entry.rubric} has more than one verdict")
            found[ids[entry.rubric]] = VerdictAnswer(rationale=entry.rationale, verdict=entry.verdict)
        if missing := [key for key, rubric in ids.items() if rubric not in found]:
            raise PartialAnswer(f"there is no verdict for {', '.join(missing)}", found)
        return found

    return ask_about(prompt_name, {**texts, "rubrics": as_json(listed)}, _answer_shape(len(ids)), read)


def _weighted_mean(scores: Iterable[RubricScore]) -> float | None:
    """The weighted mean, exact and rounded once like ADK's since the last bit decides at a threshold, or None."""
    scored = [(Fraction(score.score), Fraction(score.weight)) for score in scores if score.score is not None]
    weight = sum(each for _, each in scored)
    return float(sum(score * each for score, each in scored) / weight) if weight else None


def _merge_turns(turns: Sequence[TurnScore]) -> tuple[RubricScore, ...]:
    """Merge each rubric's scores over turns: mean score, all votes, rationale of the first failure."""
    by_id: dict[str, list[tuple[int, RubricScore]]] = {}
    for turn in turns:
        for score in turn.rubrics:
            by_id.setdefault(score.rubric_id, []).append((turn.turn, score))
    merged = []
    for judged in by_id.values():
        number, shown = next(((number, score) for number, score in judged if score.score == 0), judged[0])
        scores = [score for _, score in judged]
        votes = Votes(**{kind: sum(getattr(score.votes, kind) for score in scores) for kind in Votes.model_fields})
        place = f"turn {number + 1}: " if len(turns) > 1 and shown.rationale else ""
        fields = {"score": _weighted_mean(scores), "rationale": place + shown.rationale, "votes": votes, "cast": ()}
        merged.append(shown.model_copy(update=fields))
    return tuple(merged)


def _reason(scores: Sequence[RubricScore]) -> str:
    failed = [score for score in scores if not score.score]
    if not failed:
        return "the one rubric is met" if len(scores) == 1 else f"all {len(scores)} rubrics are met"
    shown = "; ".join(
        f"“{score.rubric_id}” no {score.votes.no} of {score.votes.yes + score.votes.no}: "
        f"{excerpt(score.rationale, 200)}"
        for score in failed[:_SHOWN]
    )
    more = f"; and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
    return f"{len(failed)} of {len(scores)} rubrics not met: {shown}{more}"


class RubricCriterion(JudgedCriterion, abc.ABC):
    """Base of rubric criteria. ``rubric_type``: the type of the rubrics in eval files that belong to the criterion.

    ``weights``: by rubric id, 1 by default (not in ADK, which weighs all rubrics alike).
    """

    rubric_type: ClassVar[str]

    rubrics: tuple[Rubric, ...] = ()
    weights: dict[str, Weight] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_rubrics(self) -> Self:
        _require_sound(self.rubrics)
        return self

    def select_rubrics(self, case: EvalCase, turn: int) -> tuple[Rubric, ...]:
        """The rubrics of one turn, in order. As in ADK, a case's rubrics without a type belong to no criterion.

        Raises ValueError with one sentence if there are none, an id occurs twice or a rubric has no text.
        """
        of_turn = case.turns[turn].rubrics if turn < len(case.turns) else None
        written, kind = [*(case.rubrics or ()), *(of_turn or ())], self.rubric_type
        chosen = (*self.rubrics, *(rubric for rubric in written if rubric.type == kind))
        _require_sound(chosen)
        if not chosen:
            others = f" (of type {kind}; there are {len(written)} of other types or of none)" if written else ""
            raise ValueError(f"there is no rubric to judge by: neither the criterion nor the case has one{others}")
        return chosen

    def check(self, case: EvalCase) -> str:
        for turn in self.judged_turns(max(len(case.turns), 1)):
            try:
                self.select_rubrics(case, turn)
            except ValueError as error:
                place = f"turn {turn + 1}: " if len(case.turns) > 1 else ""
                return f"{place}{error}"
        return ""

    def check_cases(self, cases: Iterable[EvalCase]) -> str:
        lists = (rubrics for case in cases for rubrics in (case.rubrics, *(turn.rubrics for turn in case.turns)))
        written = [rubric for rubrics in lists for rubric in rubrics or () if rubric.type == self.rubric_type]
        known = {rubric.rubric_id for rubric in (*written, *self.rubrics)}
        unknown = next((name for name in self.weights if name not in known), None)
        if unknown is None:
            return ""
        more = f"; {hint}" if (hint := did_you_mean(unknown, known)) else ""
        return f"`weights` names `{unknown}`, which is no rubric of the criterion or of a case{more}"

    def refuse(self, sample: Sample) -> CriterionScore | None:
        if problem := self.check(sample.case):
            return self.no_score(ScoreStatus.ERROR, problem)
        return super().refuse(sample)

    def judged_turns(self, turns: int) -> Sequence[int]:
        """The indexes of the turns to judge, given the number of turns."""
        return range(turns)

    @abc.abstractmethod
    def texts(self, turns: Sequence[Invocation]) -> Mapping[str, str]:
        """What the judge sees besides the rubrics, by label of the prompt; the last turn is judged."""

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        """Score one turn. If a rubric gets no verdict, the turn gets no score: leaving it out could hide a failure."""
        rubrics = self.select_rubrics(sample.case, turn)
        question = _question(self.prompt_names[0], self.texts(sample.actual[: turn + 1]), rubrics)
        polls = await vote_each(self.judge(sample), question, [rubric.rubric_id for rubric in rubrics])
        scores = tuple(
            RubricScore(
                rubric_id=rubric.rubric_id,
                text=rubric.rubric_content.text_property or "",
                score=None if poll.verdict is None else float(poll.verdict),
                rationale=poll.rationale,
                votes=poll.votes,
                cast=poll.cast,
                weight=self.weights.get(rubric.rubric_id, 1.0),
            )
            for rubric, poll in zip(rubrics, polls.values(), strict=True)
        )
        lost = [score.rubric_id for score in scores if score.score is None]
        if lost:
            more = f"; and {plural(len(lost) - 1, 'more rubric')}" if len(lost) > 1 else ""
            reason = f"“{lost[0]}”: {polls[lost[0]].undecided}{more}"
            return TurnScore(turn=turn, status=ScoreStatus.ERROR, reason=reason, rubrics=scores)
        return TurnScore(turn=turn, score=_weighted_mean(scores), reason=_reason(scores), rubrics=scores)

    async def aggregate(self, sample: Sample, turns: Sequence[TurnScore]) -> CriterionScore:
        """The mean over the rubrics of all turns; as in ADK, a turn with more rubrics weighs more."""
        del sample
        fields = {"turns": tuple(turns), "rubrics": _merge_turns(turns)}
        lost = [turn for turn in turns if turn.status is not ScoreStatus.SCORED]
        score = _weighted_mean(score for turn in turns for score in turn.rubrics)
        if lost or score is None:
            return self.no_score(ScoreStatus.ERROR, worst_reasons(lost), **fields)
        failed = [turn for turn in turns if turn.score is not None and turn.score < 1]
        return self.result(score, reason=worst_reasons(failed or turns), **fields)


class FinalResponseQuality(RubricCriterion, TurnCriterion):
    """ADK's rubric_based_final_response_quality_v1: judges the answer, given tool results and sources."""

    name: ClassVar[str] = "rubric_based_final_response_quality_v1"
    rubric_type: ClassVar[str] = "FINAL_RESPONSE_QUALITY"
    prompt_names: ClassVar[tuple[str, ...]] = ("rubrics_final_response",)

    include_intermediate_responses_in_final: bool = False

    def texts(self, turns: Sequence[Invocation]) -> Mapping[str, str]:
        turn = turns[-1]
        return {
            "instructions": first_instructions(turn),
            "tools": as_json(tools(turn)),
            "user_prompt": turn.user_content.text,
            "tool_calls": as_json(calls_with_results(turn)),
            "grounding": as_json(sources(turn.events)),
            "answer": answer_text(turn, intermediate=self.include_intermediate_responses_in_final),
        }


class ToolUseQuality(RubricCriterion, TurnCriterion):
    """ADK's rubric_based_tool_use_quality_v1: judges a turn's tool calls."""

    name: ClassVar[str] = "rubric_based_tool_use_quality_v1"
    by_events: ClassVar[bool] = True
    rubric_type: ClassVar[str] = "TOOL_USE_QUALITY"
    prompt_names: ClassVar[tuple[str, ...]] = ("rubrics_tool_use",)

    def texts(self, turns: Sequence[Invocation]) -> Mapping[str, str]:
        turn = turns[-1]
        return {
            "tools": as_json(tools(turn)),
            "user_prompt": turn.user_content.text,
            "tool_calls": as_json(calls_with_results(turn)),
        }


class TrajectoryQuality(RubricCriterion):
    """ADK's rubric_based_multi_turn_trajectory_quality_v1: judges the whole conversation once, at its last turn."""

    name: ClassVar[str] = "rubric_based_multi_turn_trajectory_quality_v1"
    by_events: ClassVar[bool] = True
    rubric_type: ClassVar[str] = "TRAJECTORY_QUALITY"
    prompt_names: ClassVar[tuple[str, ...]] = ("rubrics_conversation",)

    def judged_turns(self, turns: int) -> Sequence[int]:
        return (turns - 1,)

    def texts(self, turns: Sequence[Invocation]) -> Mapping[str, str]:
        return {
            "instructions": as_json(all_instructions(turns)),
            "tools": as_json(tools(*turns)),
            "conversation": as_json(conversation(turns)),
        }

    async def score_case(self, sample: Sample) -> CriterionScore:
        return await self.aggregate(sample, [await self.score_turn(sample, len(sample.actual) - 1)])
