"""A list of rubrics as one question to a judge, and its votes as scores: per rubric, per turn, per case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from agent_eval_action.criteria.judge import Ballot, Judge, Partial, Question, Verdict, as_json, message, vote_each
from agent_eval_action.criteria.judged.wording import excerpt, undecided
from agent_eval_action.criteria.prompts import Prompt
from agent_eval_action.model.evalset import Rubric
from agent_eval_action.model.judged import RubricScore, Votes
from agent_eval_action.model.result import ScoreStatus, TurnScore

Weights = Mapping[str, float]


def question(prompt: Prompt, texts: Mapping[str, str], rubrics: Sequence[Rubric]) -> Question[Mapping[str, Verdict]]:
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


def _read(answer: Mapping[str, Any], ids: Mapping[str, str]) -> Mapping[str, Verdict]:
    found: dict[str, Verdict] = {}
    for entry in answer["verdicts"]:
        rubric = ids[entry["rubric"]]
        if rubric in found:
            raise ValueError(f"{entry['rubric']} has more than one verdict")
        found[rubric] = Verdict(entry["verdict"] == "yes", entry["rationale"].strip())
    if missing := [key for key, rubric in ids.items() if rubric not in found]:
        raise Partial(f"there is no verdict for {', '.join(missing)}", found)
    return found


async def judged_turn(
    judge: Judge, asked: Question[Mapping[str, Verdict]], turn: int, rubrics: Sequence[Rubric], weights: Weights
) -> TurnScore:
    """The score of one turn. A rubric without a verdict voids it: leaving it out of the mean could hide a failure."""
    ballots = await vote_each(judge, asked, [rubric.rubric_id for rubric in rubrics])
    scores = tuple(_scored(rubric, ballots[rubric.rubric_id], weights) for rubric in rubrics)
    open_ = [f"“{one.rubric_id}”: {undecided(ballots[one.rubric_id])}" for one in scores if one.score is None]
    if open_:
        rest = len(open_) - 1
        more = f"; and {rest} more {'rubric' if rest == 1 else 'rubrics'}" if rest else ""
        return TurnScore(turn=turn, status=ScoreStatus.ERROR, reason=open_[0] + more, rubrics=scores)
    return TurnScore(turn=turn, score=weighted_mean(scores), reason=reason(scores), rubrics=scores)


def _scored(rubric: Rubric, ballot: Ballot, weights: Weights) -> RubricScore:
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
