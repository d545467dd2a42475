"""A pull request commits links where we write. The step is started as the runner starts it, as root."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from support.hostile import everywhere

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(900)]

OUT = ".agent-eval/out"
LINKS = {
    f"{OUT}/logs/dice_agent.log": "../../../.git/config",
    f"{OUT}/attempts.jsonl": "/github/workflow/event.json",
    f"{OUT}/blobs": "/github/home",
    f"{OUT}/results.json": "/github/file_commands/set_env_x",
    ".agent-eval/cache/llm": "/github/home",
    ".agent-eval/cache/environments": "/opt/venv",
}
PLACES = (
    "out: /github/home",
    "cache_dir: /github/home/cache",
    "out: ../home",
    "out: .git",
    "agents: [{path: dice_agent, name: ../../../.git/x}]",
)


@pytest.fixture
def attacked(kit, engine, image, tmp_path):
    """Make a job of the example, changed by the pull request; and what must stay as it is."""

    def make(change):
        workspace, temp = tmp_path / "ws", tmp_path / "temp"
        shutil.copytree(
            kit.ROOT / "examples" / "dice", workspace, ignore=shutil.ignore_patterns(".venv", "out", "cache")
        )
        (temp / "_github_workflow").mkdir(parents=True)
        (temp / "_runner_file_commands").mkdir()
        (temp / "_runner_file_commands" / "set_env_x").touch()
        (temp / "_github_workflow" / "event.json").write_text(json.dumps({"precious": True}))
        subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(workspace)], check=True)
        change(workspace)
        subprocess.run(["git", "-C", str(workspace), "add", "--all", "--force"], check=True)
        kit.check_out(workspace)
        watched = [workspace / ".git", temp / "_github_workflow", temp / "_runner_file_commands"]
        return kit.Job(engine, image, workspace, temp, {"INPUT_COMMENT": "off"}), watched

    return make


def contents(folders):
    return {
        str(path): data
        for path, data in everywhere(folders).items()
        if "set_output" not in path.name and "step_summary" not in path.name
    }


@pytest.mark.parametrize("link", LINKS)
def test_a_committed_link_leads_the_step_nowhere(attacked, link):
    def change(workspace):
        (workspace / link).parent.mkdir(parents=True, exist_ok=True)
        (workspace / link).symlink_to(LINKS[link])

    job, watched = attacked(change)
    before = contents(watched)
    done = job.run()
    assert done.returncode == 2, done.stdout + done.stderr
    assert link in done.stdout + done.stderr
    assert contents(watched) == before


@pytest.mark.parametrize("place", PLACES)
def test_a_place_or_a_name_of_the_file_leads_the_step_nowhere(attacked, place):
    def change(workspace):
        file = next(workspace.glob("agent-eval.y*ml"), workspace / "agent-eval.yaml")
        kept = file.read_text() if file.exists() and not place.startswith("agents") else ""
        lines = [line for line in kept.splitlines() if not line.startswith(place.partition(":")[0] + ":")]
        file.write_text("\n".join([*lines, place]) + "\n")

    job, watched = attacked(change)
    before = contents(watched)
    done = job.run()
    assert done.returncode == 2, done.stdout + done.stderr
    assert "agent-eval.y" in done.stdout + done.stderr or ".git" in done.stdout + done.stderr
    assert contents(watched) == before
