"""Every measurement, one after the other: ``python -m benchmarks``."""

from __future__ import annotations

import sys

from benchmarks import comment, container, gate_fidelity, judged_job, large_report, main_job, rescore


def main() -> int:
    """Run them all; 1 when one misses its target."""
    missed = [job.main([]) for job in (main_job, judged_job, rescore, large_report, comment, gate_fidelity, container)]
    return max(missed)


if __name__ == "__main__":
    sys.exit(main())
