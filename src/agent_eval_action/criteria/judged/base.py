"""What every criterion with a judge shares: the options, the prompts' versions, and the judge itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from agent_eval_action.criteria import prompts
from agent_eval_action.criteria.base import Criterion, Sample
from agent_eval_action.criteria.judge import Judge, JudgeModelOptions
from agent_eval_action.criteria.relaxation import Relaxed, lower

NO_MODEL = "this run has no model to judge with"


class JudgedCriterion(Criterion):
    """A criterion that asks a judge. ``prompt_names`` are its files in ``criteria/prompts``.

    ``calls`` is what one turn (or case) takes, ``sampled`` whether each of them is a vote of ``num_samples``.
    """

    prompt_names: ClassVar[tuple[str, ...]]
    calls: ClassVar[int] = 1
    sampled: ClassVar[bool] = True
    relaxed_when: ClassVar[Mapping[str, Relaxed]] = {"judge_model_options.num_samples": lower}

    judge_model_options: JudgeModelOptions = JudgeModelOptions()

    def version(self) -> str:
        return "+".join([self.scoring_version, *(prompts.load(name).version for name in self.prompt_names)])

    def models(self) -> tuple[str, ...]:
        return (self.judge_model_options.judge_model,)

    def judge(self, sample: Sample) -> Judge | None:
        """Who judges this attempt; None when the run has no model (``NO_MODEL`` says so)."""
        llm = sample.instruments.llm
        return Judge(llm, self.judge_model_options, self.name, sample.repeat) if llm else None
