"""Runs all benchmarks, one after the other: ``python -m benchmarks``."""

from __future__ import annotations

import sys

from benchmarks import (
    adk_server,
    comment,
    container,
    gate_fidelity,
    judged_job,
    large_report,
    main_job,
    price_per_verdict,
    rescore,
)


def main() -> int:
    """Run them all. Returns 1 if one misses its target."""
    jobs = (
        main_job,
        adk_server,
        judged_job,
        rescore,
        large_report,
        comment,
        gate_fidelity,
        price_per_verdict,
        container,
    )
    missed = [job.main([]) for job in jobs]
    return max(missed)


if __name__ == "__main__":
    sys.exit(main())
