"""Turns conversations with an agent into eval cases, and edits eval files."""

from agent_eval_action.capture.cases import case_of_turns
from agent_eval_action.capture.conversations import converse
from agent_eval_action.capture.eval_files import EvalFile
from agent_eval_action.diagnostics.suggestions import free_name

__all__ = ["EvalFile", "case_of_turns", "converse", "free_name"]
