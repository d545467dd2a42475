"""A repository that robs whoever evaluates it: its agent, its metric function and its build step; and what it got."""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
AGENT = "robber"
_SAID = re.compile(r"ROBBERY ([0-9a-f]+) YREBBOR")


def canary(place: str) -> str:
    """A secret that says where it was taken from."""
    return f"canary-{place}-{secrets.token_hex(8)}"


def write_repository(folder: Path, targets: dict[str, Any], requirements: str, adk_path: str = "") -> None:
    """The files of a checkout. ``targets``: what is attacked, by the names robbery.py reads."""
    agent = folder / AGENT
    agent.mkdir(parents=True)
    (agent / "__init__.py").write_text("from . import agent\n")
    for name in ("agent.py", "metrics.py", "robbery.py"):
        shutil.copyfile(HERE / name, agent / name)
    evil = folder / "evil"
    evil.mkdir()
    for name in ("backend.py", "robbery.py"):
        shutil.copyfile(HERE / name, evil / name)
    (evil / "adk-path.txt").write_text(adk_path)
    (evil / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "hostile-build"\nversion = "1.0"\n'
    )
    for place in (agent, evil):
        (place / "targets.json").write_text(json.dumps(targets))
    (folder / "requirements.txt").write_text(f"./evil\n{requirements}")
    (folder / "agent-eval.yaml").write_text(f"agent:\n  path: {AGENT}\n  evals: evals\n  timeout_s: 240\nretries: 0\n")
    evals = folder / "evals"
    evals.mkdir()
    turn = {
        "invocation_id": "one",
        "user_content": {"role": "user", "parts": [{"text": "hello"}]},
        "final_response": {"role": "model", "parts": [{"text": "hello"}]},
    }
    case = {"eval_id": "one", "conversation": [turn], "session_input": {"app_name": AGENT, "user_id": "u"}}
    (evals / "robbing.evalset.json").write_text(json.dumps({"eval_set_id": "robbing", "eval_cases": [case]}))
    metric = {"code_config": {"name": f"{AGENT}.metrics.honest"}}
    (evals / "test_config.json").write_text(
        json.dumps({"criteria": {"response_match_score": 0.0, "honest": 0.5}, "custom_metrics": {"honest": metric}})
    )


def robberies(texts: Iterable[str]) -> list[dict[str, Any]]:
    """What the robbers said, wherever it was written down, each once."""
    found = {}
    for text in texts:
        for said in _SAID.findall(text):
            found[said] = json.loads(bytes.fromhex(said))
    return list(found.values())


def everywhere(folders: Iterable[Path]) -> dict[Path, bytes]:
    """Every file below the folders, by its path."""
    return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}
