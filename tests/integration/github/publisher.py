"""A job as a process of its own: writes its comment on each pull request it is told, all at once.

Reads lines of JSON (pull requests, and what the comment says of itself), answers each with a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from agent_eval_action.ci.base import ChangeRequest
from agent_eval_action.ci.comment import Marker, publish
from agent_eval_action.ci.host import GitHubClient


def one(told: dict[str, Any], number: int) -> dict[str, Any]:
    github = GitHubClient(os.environ, told["token"])
    time.sleep(told.get("delay", 0.0))
    said = told["text"]

    def render(budget: int) -> str:
        return said[:budget]

    try:
        made = publish(github, ChangeRequest(told["repo"], number), Marker(**told["stamp"]), render, told["mode"])
    finally:
        github.close()
    return {"number": number, "note": made.note, "ok": made.ok, "written": made.written}


def main() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        told = json.loads(line)
        with ThreadPoolExecutor(len(told["numbers"])) as pool:
            answers = list(pool.map(partial(one, told), told["numbers"]))
        sys.stdout.write(json.dumps(answers) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
