"""The example agent in a job's checkout: main, a change that breaks one case, and GitHub's merge of both."""

from __future__ import annotations

import subprocess

ONE = "players_own_die"  # rolls a d12, as one other case does
BREAK = '    if sides == 12 and tool_context.state.get("own_die"):\n        return {"error": "no such die"}\n'
PULL = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF": "refs/pull/7/merge", "GITHUB_BASE_REF": "main"}


def git(job, *argv: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "safe.directory=*")
    done = subprocess.run(
        ["git", *who, "-C", str(job.workspace), *argv], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


def commit(job, *broken: str) -> None:
    """One commit; ``broken``: with a tool that fails one case."""
    tools = job.workspace / "dice_agent" / "tools.py"
    line = "    if sides < MIN_SIDES:\n"
    for code in broken:
        tools.write_text(tools.read_text().replace(line, code + line))
    git(job, "commit", "--quiet", "--all", "--allow-empty", "-m", "x")


def merged(job) -> str:
    """Check out what GitHub would: the change, merged onto main. Returns main."""
    main = git(job, "rev-parse", "main")
    git(job, "checkout", "--quiet", "--detach", "main")
    git(job, "merge", "--quiet", "--no-ff", "-m", "merge", "change")
    job.environ.update(PULL)
    return main
