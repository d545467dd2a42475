"""The cost of the reports of a failing run of 5,000 cases: comment, summary, annotations and page, with their limits.

``python -m benchmarks.large_report [CASES]``
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from agent_eval_action.ci.github_actions import SUMMARY_LIMIT, WorkflowCommands
from agent_eval_action.reports import REPORTS, ReportInput, results_json
from agent_eval_action.reports.annotations import remarks, shown_in_step
from agent_eval_action.reports.html import BUDGET
from agent_eval_action.results.decision import PairChange
from agent_eval_action.results.run_result import RunResult

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "regressed" / "results.json"
CASES = 5_000
SECONDS = 5.0
_COMMENT = 65_000
_ANNOTATIONS = 30
_SPARE = 500_000  # the page's frame and rows do not count towards its budget


def failing(cases: int) -> RunResult:
    """Return a run with ``cases`` copies of the golden regression's blocked cases, with turns and judges' answers."""
    one = results_json.read(GOLDEN)
    owner, decision = one.sets[0], one.decision
    assert decision is not None  # noqa: S101 - a golden file holds one
    blocked = {pair.case for pair in decision.pairs if pair.blocking}
    templates = [case for case in owner.cases if case.case in blocked]
    pairs: list[PairChange] = []
    made = []
    for number in range(cases):
        template = templates[number % len(templates)]
        name = f"{template.case}_{number:05}"
        made.append(template.model_copy(update={"case": name, "line": number + 1}))
        pairs += [pair.model_copy(update={"case": name}) for pair in decision.pairs if pair.case == template.case]
    decided = decision.model_copy(update={"pairs": tuple(pairs)})
    return one.model_copy(
        update={"sets": (owner.model_copy(update={"cases": tuple(made)}),), "decision": decided},
    )


def main(words: list[str]) -> int:
    """Print the figures. Returns 1 if a limit is exceeded or all reports take more than five CPU seconds."""
    cases = int(words[0]) if words else CASES
    report = ReportInput(failing(cases))
    parts: dict[str, tuple[Callable[[], str], int]] = {
        "comment": (lambda: REPORTS["markdown"](report, None), _COMMENT),
        "summary": (lambda: REPORTS["summary"](report, None), SUMMARY_LIMIT),
        "page": (lambda: REPORTS["html"](report, None), BUDGET + _SPARE),
        "annotations": (
            lambda: "\n".join(map(WorkflowCommands().annotation, shown_in_step(list(remarks(report))))),
            4_500 * _ANNOTATIONS,
        ),
    }
    total, kept = 0.0, True
    print(f"{cases:,} cases, all of them failing:")
    whole = time.perf_counter()
    for name, (make, limit) in parts.items():
        began = time.process_time()
        size = len(make().encode())
        took = time.process_time() - began
        total, kept = total + took, kept and size <= limit
        print(f"  {name:<12} {size:>12,} bytes of {limit:>12,}  {took:6.2f} s")
    clock = time.perf_counter() - whole
    print(f"  together {total:.2f} s of the processor, {SECONDS:g} s allowed; {clock:.2f} s by the clock")
    return int(not kept or total > SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
