"""Judges in one place: what is asked (``asking``), how votes fall (``voting``), how texts are fenced (``fence``)."""

from agent_eval_action.criteria.asking import Judge, NoAnswer, Partial, Question
from agent_eval_action.criteria.fence import as_json, fenced, fences, message, printable
from agent_eval_action.criteria.judge_options import JudgeModelOptions
from agent_eval_action.criteria.voting import VERDICT_SCHEMA, Ballot, Verdict, read_verdict, vote, vote_each

__all__ = [
    "VERDICT_SCHEMA",
    "Ballot",
    "Judge",
    "JudgeModelOptions",
    "NoAnswer",
    "Partial",
    "Question",
    "Verdict",
    "as_json",
    "fenced",
    "fences",
    "message",
    "printable",
    "read_verdict",
    "vote",
    "vote_each",
]
