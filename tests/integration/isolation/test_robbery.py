"""A hostile repository on a machine where we are root: its agent, its metric and its build step get nothing."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.hostile import canary, everywhere, robberies, write_repository

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

OWNER = 1001


@dataclass
class Scene:
    """A checkout of the runner's user, secrets around it, an engine that listens; and how it is evaluated."""

    folder: Path
    tool: Path
    environ: dict[str, str]
    connections: list[bytes]
    mark: str

    @property
    def workspace(self) -> Path:
        return self.folder / "ws"

    def run(self, **more: str) -> subprocess.CompletedProcess[str]:
        program = self.tool.parents[2] / "agent-eval.py"
        return subprocess.run(
            [str(self.tool), "-I", "-u", str(program), "run"],
            cwd=self.workspace,
            env={**self.environ, **more},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            # root of a machine is in groups, and an agent must be in none of them
            extra_groups=[0, 4, 27],
        )

    def written(self) -> dict[Path, bytes]:
        return everywhere([self.workspace / ".agent-eval", self.folder / "temp"])


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(
        [
            "git",
            "-c",
            "safe.directory=*",
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@x.invalid",
            "-C",
            str(folder),
            *args,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture
def scene(tmp_path, pythons):
    workspace, temp = tmp_path / "ws", tmp_path / "temp"
    commands = temp / "_runner_file_commands"
    commands.mkdir(parents=True)
    for name in ("output", "env", "path", "state", "summary"):
        (commands / name).touch()
    (temp / "event.json").write_text(json.dumps({"secret": canary("event")}))
    checkout_token = temp / "git-credentials-1.config"
    checkout_token.write_text(canary("checkout"))
    engine = temp / "docker.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(engine))
    engine.chmod(0o660)
    listener.listen()
    connections: list[bytes] = []

    def answer():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            connections.append(b"somebody")
            client.close()

    threading.Thread(target=answer, daemon=True).start()
    git_folder = workspace / ".git"
    mark = f"left-behind-{secrets.token_hex(8)}"
    targets = {
        "mark": mark,
        "roots": [str(tmp_path), "/run", "/etc"],
        "files": [
            *map(str, commands.iterdir()),
            str(temp / "event.json"),
            str(checkout_token),
            str(git_folder / "config"),
        ],
        "folders": [
            str(workspace),
            str(workspace / ".agent-eval/out"),
            str(workspace / ".agent-eval/cache"),
            str(temp),
        ],
        "sockets": [str(engine)],
        "git": [str(git_folder)],
        "marker": str(tmp_path / "git-was-made-to-run-this"),
        "precious": [str(temp / "precious")],
    }
    write_repository(workspace, targets, "", pythons.adk_path)
    git(tmp_path, "init", "-q", "ws")
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", "x")
    git(workspace, "config", "http.https://github.com/.extraheader", f"AUTHORIZATION: basic {canary('gitconfig')}")
    (workspace / "gha-creds-0123456789abcdef.json").write_text(
        json.dumps({"type": "nothing", "key": canary("ghacreds")})
    )
    subprocess.run(["chown", "-R", f"{OWNER}:{OWNER}", str(workspace), str(temp)], check=True)
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "UV_PYTHON": "/usr/bin/python3",
        "UV_OFFLINE": "1",
        "AGENT_EVAL_ISOLATION": "on",
        "GITHUB_WORKSPACE": str(workspace),
        "GITHUB_ACTIONS": "true",
        "GITHUB_OUTPUT": str(commands / "output"),
        "GITHUB_ENV": str(commands / "env"),
        "GITHUB_PATH": str(commands / "path"),
        "GITHUB_STATE": str(commands / "state"),
        "GITHUB_STEP_SUMMARY": str(commands / "summary"),
        "GITHUB_EVENT_PATH": str(temp / "event.json"),
        "RUNNER_TEMP": str(temp),
        "GITHUB_TOKEN": canary("github_token"),
        "INPUT_GITHUB-TOKEN": canary("input_token"),
        "INPUT_COMMENT": "off",
        "ACTIONS_RUNTIME_TOKEN": canary("runtime"),
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN": canary("idtoken"),
        "DEPLOY_KEY": canary("job_env"),
        "INPUT_BASELINE-STORE": "file",
    }
    yield Scene(tmp_path, pythons.tool, environ, connections, mark)
    listener.close()


def left_behind(mark: str) -> list[int]:
    """Processes the robbers of this test left, which live ten minutes."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and mark.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def test_nothing_is_got_and_nothing_is_left(scene):
    before = git(scene.workspace, "status", "--porcelain")
    hooks = sorted(path.name for path in (scene.workspace / ".git/hooks").iterdir())
    done = scene.run()
    printed = done.stdout + done.stderr
    files = scene.written()
    said = robberies([printed, *(data.decode("utf-8", "replace") for data in files.values())])
    assert {one["who"] for one in said} == {"build", "import", "turn", "metric"}, printed
    assert [one["loot"] for one in said if one["loot"]] == []
    assert all(one["tried"] > 100 for one in said)
    uids = {one["who"]: one["uid"] for one in said}
    assert not {0, OWNER} & set(uids.values())
    assert len({uids["metric"], uids["turn"], uids["build"]}) == len(uids) - 1, "none can trace what grades it"
    assert all(set(one["groups"]) <= {one["uid"]} for one in said)
    for path, data in files.items():
        secret = [value for value in scene.environ.values() if value.startswith("canary-") and value.encode() in data]
        assert not secret, path
    assert b"canary-ghacreds" not in b"".join(data for path, data in files.items() if ".agent-eval" in str(path))
    commands = scene.folder / "temp/_runner_file_commands"
    assert [name for name in ("env", "path", "state") if (commands / name).read_bytes()] == []
    assert b"ROBBED" not in (commands / "output").read_bytes()
    assert scene.connections == []
    git(scene.workspace, "status")
    assert not (scene.folder / "git-was-made-to-run-this").exists()
    assert sorted(path.name for path in (scene.workspace / ".git/hooks").iterdir()) == hooks
    assert git(scene.workspace, "status", "--porcelain", "--", ".", ":!.agent-eval") == before
    assert left_behind(scene.mark) == []
    others = [path for path in scene.folder.rglob("*") if path.lstat().st_uid not in {0, OWNER}]
    assert others == []
    roots = [path for path in (scene.workspace / ".agent-eval").rglob("*") if path.lstat().st_uid != OWNER]
    assert roots == []


@pytest.mark.exhaustive
def test_the_robbers_do_rob_where_nothing_holds_them(scene):
    """Else the tests above would pass on robbers that cannot rob."""
    done = scene.run(AGENT_EVAL_ISOLATION="off")
    said = robberies([done.stdout + done.stderr, *(d.decode("utf-8", "replace") for d in scene.written().values())])
    loot = "\n".join(got for one in said for got in one["loot"])
    for what in (
        "canary-gitconfig",
        "canary-ghacreds",
        "canary-checkout",
        "canary-event",
        "append",
        "connect",
        "write",
    ):
        assert what in loot, loot
    assert "canary-job_env" in loot, "our own environment is read in /proc"
    assert "canary-runtime" in loot
    assert scene.connections
    left = left_behind(scene.mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left
