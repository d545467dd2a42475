"""The cost of posting the comments of a failing run of 5,000 cases in three matrix legs.

``python -m benchmarks.comment [CASES]``; posts to tests/support/github_server.
"""

from __future__ import annotations

import sys
import time
from functools import partial

from agent_eval_action.ci.base import ChangeRequest
from agent_eval_action.ci.comment import BUDGETS, Marker, publish
from agent_eval_action.ci.host import GitHubClient
from agent_eval_action.reports import REPORTS, ReportInput
from agent_eval_action.reports.base import scores_only
from benchmarks.large_report import CASES, SECONDS, failing
from support.github_server.client import running

LEGS = 3


def main(words: list[str]) -> int:
    """Print the figures. Returns 1 if a comment exceeds its limit or a leg takes more than five CPU seconds."""
    cases = int(words[0]) if words else CASES
    whole = ReportInput(failing(cases), marker="")
    kept = True
    print(f"{cases:,} failing cases, {LEGS} legs one after the other, each with a comment of its own:")
    with running() as server:
        for leg in range(LEGS):
            report = scores_only(whole) if leg == LEGS - 1 else whole
            github = GitHubClient(server.environ, server.token)
            marker = Marker(key=f"leg {leg}", run=1, run_id=10, outcome="fail")
            render = partial(REPORTS["markdown"], report)
            began, clock = time.process_time(), time.perf_counter()
            published = publish(github, ChangeRequest(server.repo, 7), marker, render)
            took, waited = time.process_time() - began, time.perf_counter() - clock
            github.close()
            size = len(server.comments(7)[-1]["body"].encode())
            kept = kept and published.ok and size <= BUDGETS[0] and took <= SECONDS
            figures = f"{took:5.2f} s of the processor, {waited:5.2f} s by the clock"
            print(f"  leg {leg}: {size:>7,} bytes of {BUDGETS[0]:,}  {figures}")
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
