"""A report: a line of CSV for each score."""

from __future__ import annotations

import csv
import io

from agent_eval_action.reports.base import ReportInput


def csv_report(report: ReportInput, budget: int | None) -> str:
    """`agent-eval report results.json --to csv`; ``budget`` is in bytes, None without one."""
    del budget
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["set", "case", "repeat", "criterion", "score"])
    for eval_set in report.result.sets:
        for case in eval_set.cases:
            for repeat, attempt in enumerate(case.attempts, 1):
                for score in attempt.scores:
                    writer.writerow([eval_set.eval_set, case.case, repeat, score.criterion, score.score])
    return text.getvalue()
