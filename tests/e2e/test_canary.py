"""Secrets are put wherever a job has some, and everything of the repository's that runs tries to get them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from support.hostile import canary, everywhere, robberies, write_repository

RUNNER_UID = 1001
pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(900)]

MARKER = "/tmp/git-was-made-to-run-this"  # noqa: S108 - in the container
COMMANDS = ("set_output_x", "set_env_x", "add_path_x", "save_state_x", "step_summary_x")
VARIABLES = (
    "GITHUB_TOKEN",
    "ACTIONS_RUNTIME_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "ACTIONS_RESULTS_URL",
    "RUNNER_SECRET",
    "DEPLOY_KEY",
)

LOOK = """
import os, pathlib
for folder in pathlib.Path("/proc").iterdir():
    # not itself: docker starts what it executes in a container with the container's environment
    if folder.name.isdigit() and folder.name != str(os.getpid()):
        try:
            print((folder / "environ").read_bytes().replace(b"\\0", b"\\n").decode("utf-8", "replace"))
        except OSError:
            pass
"""


@contextlib.contextmanager
def engine_socket(path: Path):
    """What stands for the engine's socket: whoever connects is counted."""
    connections = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o660)
    listener.listen()

    def answer():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            connections.append(1)
            client.close()

    threading.Thread(target=answer, daemon=True).start()
    try:
        yield connections
    finally:
        listener.close()


def as_engine(path: Path) -> tuple[str, ...]:
    """The option that mounts it where the engine's own is; where there is a real one the runner mounts that."""
    return () if Path("/var/run/docker.sock").is_socket() else ("-v", f"{path}:/var/run/docker.sock")


@pytest.fixture
def robbed(kit, engine, image, tmp_path):
    """A job whose repository is hostile, with its secrets in place."""
    workspace, temp = tmp_path / "ws", tmp_path / "temp"
    commands = temp / "_runner_file_commands"
    (temp / "_github_workflow").mkdir(parents=True)
    commands.mkdir()
    for name in COMMANDS:
        (commands / name).touch()
    (temp / "_github_workflow" / "event.json").write_text(json.dumps({"client_payload": canary("event")}))
    (temp / "git-credentials-7.config").write_text(canary("checkout"))
    there = [f"/github/file_commands/{name}" for name in COMMANDS]
    targets = {
        "mark": "left-behind",
        "roots": ["/github", "/run", "/var", "/root", "/home", "/tmp", "/etc", "/agent-eval"],  # noqa: S108 - searched
        "files": [*there, "/github/workflow/event.json", "/github/workspace/.git/config", "/proc/1/environ"],
        "folders": ["/github/workspace", "/github/home", "/github/runner_temp", "/github/workspace/.agent-eval/out"],
        "sockets": ["/var/run/docker.sock", "/run/docker.sock"],
        "git": ["/github/workspace/.git"],
        "marker": MARKER,
        "precious": ["/github/runner_temp/precious"],
    }
    requirements = (kit.ROOT / "examples" / "dice" / "requirements.txt").read_text()
    write_repository(workspace, targets, requirements)
    kit.check_out(workspace)
    config = ["git", "-c", "safe.directory=*", "-C", str(workspace), "config"]
    subprocess.run(
        [*config, "http.https://github.com/.extraheader", f"AUTHORIZATION: {canary('gitconfig')}"], check=True
    )
    (workspace / "gha-creds-0123456789abcdef.json").write_text(json.dumps({"type": "x", "key": canary("ghacreds")}))
    subprocess.run(["chown", "-R", f"{RUNNER_UID}:{RUNNER_UID}", str(workspace), str(temp)], check=True)
    secrets = {name: canary(name.lower()) for name in VARIABLES} | {"INPUT_GITHUB-TOKEN": canary("input")}
    environ = {
        **secrets,
        "RUNNER_JOB_ENV": "DEPLOY_KEY",
        "INPUT_COMMENT": "off",
        "INPUT_BASELINE-STORE": "file",
        **{
            name: str(commands / file)
            for name, file in {
                "GITHUB_ENV": "set_env_x",
                "GITHUB_PATH": "add_path_x",
                "GITHUB_STATE": "save_state_x",
            }.items()
        },
    }
    with engine_socket(tmp_path / "docker.sock") as connections:
        mounted = replace(engine, options=(*engine.options, *as_engine(tmp_path / "docker.sock")))
        yield kit.Job(mounted, image, workspace, temp, environ), secrets, connections


def test_a_hostile_repository_gets_nothing(robbed):
    job, secrets, connections = robbed
    done = job.run()
    printed = done.stdout + done.stderr
    files = everywhere([job.workspace / ".agent-eval", job.temp])
    said = robberies([printed, *(data.decode("utf-8", "replace") for data in files.values())])
    assert {one["who"] for one in said} == {"build", "import", "turn", "metric"}, printed
    assert [(one["who"], one["loot"]) for one in said if one["loot"]] == []
    assert all(one["tried"] > 100 for one in said)
    uids = {one["who"]: one["uid"] for one in said}
    assert not {0, RUNNER_UID} & set(uids.values())
    assert len({uids["build"], uids["turn"], uids["metric"]}) == 3
    masks = "\n".join(line for line in printed.splitlines() if not line.startswith("::add-mask::"))
    for value in secrets.values():
        assert value not in masks
        assert [path for path, data in files.items() if value.encode() in data] == []
    kept = b"".join(data for path, data in files.items() if path.is_relative_to(job.workspace))
    for place in (b"canary-event", b"canary-checkout", b"canary-gitconfig", b"canary-ghacreds"):
        assert place not in kept
    assert connections == []
    commands = job.temp / "_runner_file_commands"
    assert [name for name in ("set_env_x", "add_path_x", "save_state_x") if (commands / name).read_bytes()] == []
    assert job.outputs()["verdict"] in {"pass", "fail", "inconclusive", "collecting"}
    assert b"ROBBED" not in b"".join((commands / name).read_bytes() for name in COMMANDS)
    git = ("--no-optional-locks", "-c", "safe.directory=*", "-C", "/github/workspace")
    mount = ("-v", f"{job.workspace}:/github/workspace", "--entrypoint", "sh")
    after = f"git {' '.join(git)} status && git {' '.join(git)} log -1 && ! test -e {MARKER}"
    job.engine.docker("run", "--rm", *job.engine.options, *mount, job.image, "-ec", after)
    foreign = [
        path
        for folder in (job.workspace, job.temp)
        for path in folder.rglob("*")
        if path.lstat().st_uid != RUNNER_UID and path.name != "docker.sock"
    ]
    assert foreign == []


def test_the_first_process_shows_nobody_what_it_was_given(robbed):
    """Not even to root, as `docker exec` is: what it was started with is in no process's environment."""
    job, secrets, _ = robbed
    agent = job.workspace / "robber" / "agent.py"
    agent.write_text("import time\ntime.sleep(60)\n" + agent.read_text())
    argv, environ = job.command()
    with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        name = f"action_{process.pid}"
        seen = ""
        while process.poll() is None and "AGENT_EVAL_WORKER" not in seen:
            # --privileged, because root without it may not look into another uid's
            seen = job.engine.docker(
                "exec", "--privileged", name, "/opt/venv/bin/python", "-I", "-c", LOOK, check=False
            ).stdout
        job.engine.docker("stop", "--time", "10", name, check=False)
        printed, _ = process.communicate(timeout=60)
    assert "AGENT_EVAL_WORKER" in seen, printed
    assert [value for value in secrets.values() if value in seen] == []


def test_what_was_written_is_given_back_after_a_cancel(kit, engine, image, tmp_path):
    """The post-entrypoint, with a link to the engine's socket planted where it looks."""
    workspace, temp = tmp_path / "ws", tmp_path / "temp"
    (workspace / ".agent-eval" / "out").mkdir(parents=True)
    (workspace / ".agent-eval" / "out" / "results.json").write_text("{}")
    precious = tmp_path / "precious"
    precious.write_text("root's")
    (workspace / ".agent-eval" / "out" / "link").symlink_to("/var/run/docker.sock")
    (workspace / ".agent-eval" / "out" / "folder").symlink_to("/etc")
    os.chown(workspace, RUNNER_UID, RUNNER_UID)
    with engine_socket(tmp_path / "docker.sock"):
        before = (tmp_path / "docker.sock").stat()
        mounted = replace(engine, options=(*engine.options, *as_engine(tmp_path / "docker.sock")))
        entry = ("--entrypoint", "/usr/local/bin/agent-eval-restore-ownership")
        job = kit.Job(replace(mounted, options=(*mounted.options, *entry)), image, workspace, temp, {})
        done = job.run()
        assert done.returncode == 0, done.stderr
        after = (tmp_path / "docker.sock").stat()
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert {path.lstat().st_uid for path in workspace.rglob("*")} == {RUNNER_UID}
    shutil.rmtree(workspace)
