"""Private packages where agent and install step have uids of their own: the one has the password, the other never."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.package_index import PackageIndex, running, wheel

PASSWORD = "s3cretword-of-the-index"  # noqa: S105 - of a server on this machine
TOKEN = "ghs_0123456789abcdef"  # noqa: S105 - of nobody
OWNER = 1001
# Everything the agent can find out about its own and others' processes, and the environment it was built with.
AGENT = """
import json, os, pathlib, sys
import house_tools
found = [dict(os.environ)]
for place in [*pathlib.Path("/proc").glob("[0-9]*/environ"), *pathlib.Path(sys.prefix).rglob("*")]:
    try:
        found.append(place.read_bytes().decode("utf-8", "replace") if place.is_file() else "")
    except OSError:
        pass
said = json.dumps(found)
word = "s3cretword" + "-of-the-index"
raise RuntimeError(f"uid {os.getuid()} looked at {len(found)}: " + ("ROBBED" if word in said else "nothing"))
"""


@pytest.fixture
def index(tmp_path: Path, pythons) -> Iterator[PackageIndex]:
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel(folder, "google-adk", "9.9.0", {"others.pth": f"{pythons.adk_path}\n"})
    wheel(folder, "house-tools", "1.0", {"house_tools.py": ""})
    with running(folder, "reader", PASSWORD) as served:
        yield served


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    (folder / "bot").mkdir(parents=True)
    (folder / "bot" / "agent.py").write_text(AGENT + "root_agent = None\n")
    (folder / "requirements.txt").write_text("google-adk\nhouse-tools\n")
    turn = {"user_content": {"parts": [{"text": "hi"}]}, "final_response": {"parts": [{"text": "ho"}]}}
    cases = {"eval_set_id": "s", "eval_cases": [{"eval_id": "a", "conversation": [turn]}]}
    (folder / "bot" / "s.evalset.json").write_text(json.dumps(cases))
    subprocess.run(["git", "init", "-q", folder], check=True)
    subprocess.run(["chown", "-R", f"{OWNER}:{OWNER}", folder], check=True)
    return folder


def run(pythons, workspace: Path, index: PackageIndex, **more: str) -> str:
    """What was printed and what was written, the environment kept for the next job included."""
    done = subprocess.run(
        [pythons.tool, "-I", pythons.tool.parents[2] / "agent-eval.py", "run"],
        cwd=workspace,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(workspace.parent),
            "UV_PYTHON": "/usr/bin/python3",
            "UV_NO_CACHE": "1",
            "AGENT_EVAL_ISOLATION": "on",
            "GITHUB_WORKSPACE": str(workspace),
            "INPUT_RETRIES": "0",
            "INPUT_INSTALL-ENV": f"UV_DEFAULT_INDEX={index.login()}\nGIT_TOKEN",
            "GIT_TOKEN": TOKEN,
            **more,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    files = [path.read_bytes() for path in (workspace / ".agent-eval").rglob("*") if path.is_file()]
    return done.stdout + done.stderr + b"\n".join(files).decode("utf-8", "replace")


def test_the_build_has_the_password_and_no_agent_finds_it(pythons, workspace, index):
    said = run(pythons, workspace, index)
    assert any(path.endswith(".whl") for path in index.served)
    assert "no process can be given another uid" not in said
    assert PASSWORD not in said
    assert TOKEN not in said
    assert ": nothing (environment: built" in said, said[:4000]


@pytest.mark.exhaustive
def test_the_agent_would_say_so_if_it_found_it(pythons, workspace, index):
    said = run(pythons, workspace, index, INPUT_ENV=f"GIVEN_AWAY={PASSWORD}")
    assert ": ROBBED (environment: built" in said, said[:4000]
    assert PASSWORD not in said


def test_a_failing_package_is_named_with_the_paths_of_the_checkout(pythons, workspace, index):
    (workspace / "requirements.txt").write_text("google-adk\nnot-there\n")
    said = run(pythons, workspace, index)
    assert f"from {workspace}/requirements.txt: package not-there failed" in said
    assert PASSWORD not in said
