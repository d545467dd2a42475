"""A step on the runner itself, where an agent has the tool's own uid: what it reaches of tool and step."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from uv import find_uv_bin

from support.hostile import canary

ROOT = Path(__file__).resolve().parents[3]
RUNNER_UID = 1001
SYSTEM = Path("/usr/bin/python3")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED, the guard of a step: it acts on Linux only"),
    pytest.mark.timeout(300),
]

PROGRAM = """
import os, subprocess, sys
from agent_eval_action.cli import print_step_error
from agent_eval_action.sandbox.container_init import supervise
supervise(print_step_error)
from agent_eval_action.ci.github_actions import GitHubActions
attack = sys.argv[1]
done = subprocess.run([sys.executable, "-I", "-c", attack, *sys.argv[2:]], env={}, capture_output=True, text=True)
sys.stdout.write(done.stdout + done.stderr)
said = GitHubActions().write_outputs({"verdict": "fail" if len(sys.argv) < 3 else sys.argv[2]}, os.environ)
sys.exit(said or 0)
"""

READ = """
import os
pid = os.getpid()
for _ in range(2):  # who works, and who looks after it
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    for name in ("environ", "mem", "maps"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                print("GOT", pid, name, file.read() if name == "environ" else b"")
        except OSError as error:
            print("NOTHING", name, type(error).__name__)
print(open("/proc/self/status").read())
"""


@dataclass
class Step:
    """A step of the runner's user: its files, its environment, and a tool in RUNNER_TEMP that it could change."""

    folder: Path
    python: Path
    files: dict[str, Path]
    secret: str

    @property
    def package(self) -> Path:
        (site,) = (self.folder / "tool").glob("lib/python*/site-packages")
        return site / "agent_eval_action"

    def run(self, attack: str, verdict: str = "fail") -> subprocess.CompletedProcess[str]:
        environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder),
            "GITHUB_ACTIONS": "true",
            "RUNNER_TEMP": str(self.folder),
            "GITHUB_TOKEN": self.secret,
            "INPUT_GITHUB_TOKEN": self.secret,
            **{name: str(path) for name, path in self.files.items()},
        }
        who = {"user": RUNNER_UID, "group": RUNNER_UID, "extra_groups": []} if os.geteuid() == 0 else {}
        return subprocess.run(
            [str(self.python), "-I", "-c", PROGRAM, attack, verdict],
            cwd=self.folder,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            **who,
        )


@pytest.fixture
def step() -> Iterator[Step]:
    folder = Path(f"/var/tmp/agent-eval-step-{os.getpid()}-{time.monotonic_ns()}")  # noqa: S108 - a name of our own
    folder.mkdir(mode=0o755)
    python = SYSTEM if SYSTEM.exists() and os.geteuid() == 0 else Path(sys.executable)
    subprocess.run([find_uv_bin(), "venv", "-q", "--python", str(python), str(folder / "tool")], check=True)
    (site,) = (folder / "tool").glob("lib/python*/site-packages")
    shutil.copytree(ROOT / "src" / "agent_eval_action", site / "agent_eval_action")
    files = {}
    for name in ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_STATE", "GITHUB_STEP_SUMMARY"):
        files[name] = folder / name.lower()
        files[name].write_text(f"earlier={name}\n")
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", f"{RUNNER_UID}:{RUNNER_UID}", str(folder)], check=True)
    yield Step(folder, folder / "tool" / "bin" / "python", files, canary("token"))
    shutil.rmtree(folder)


def test_the_steps_tokens_are_in_no_process_that_an_agent_can_look_into(step):
    done = step.run(READ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("NOTHING environ") >= 2, done.stdout
    assert step.secret not in done.stdout
    assert "NOTHING mem" in done.stdout
    assert "GOT" not in done.stdout


def test_sudo_and_other_set_uid_programs_make_nobody_root(step):
    assert "NoNewPrivs:\t1" in step.run(READ).stdout


def test_what_an_agent_writes_for_the_runner_is_taken_out_again(step):
    attack = (
        "".join(f"open({str(path)!r}, 'a').write('ROBBED=1\\n')\n" for path in step.files.values())
        + f"open({str(step.files['GITHUB_OUTPUT'])!r}, 'w').write('verdict=pass\\n')\n"
    )
    done = step.run(attack)
    for name, path in step.files.items():
        text = path.read_text()
        assert text.startswith(f"earlier={name}\n"), name
        assert "ROBBED" not in text
        assert "verdict=pass" not in text
        assert f"wrote to {name}" in done.stdout
    assert "fail" in step.files["GITHUB_OUTPUT"].read_text()
    assert done.returncode == 3, "a green step is none to rely on"


def test_a_process_that_an_agent_leaves_behind_ends_before_the_runner_reads(step):
    program = (
        "import time, pathlib\\n"
        f"while True: pathlib.Path({str(step.files['GITHUB_OUTPUT'])!r}).open('a').write('verdict=pass\\\\n')"
    )
    attack = f"""
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    left = subprocess.Popen([sys.executable, "-I", "-c", "{program}"], env={{}}, start_new_session=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os._exit(0)
os.wait()
while "verdict=pass" not in open({str(step.files["GITHUB_OUTPUT"])!r}).read():
    time.sleep(0.01)
print("LEFT")
"""
    done = step.run(attack)
    assert "LEFT" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 3
    written = step.files["GITHUB_OUTPUT"].read_text()
    assert "verdict=pass" not in written
    time.sleep(0.2)
    assert step.files["GITHUB_OUTPUT"].read_text() == written


CHANGES = {
    "a module": "(package / 'stats.py').write_text('x = 1')",
    "a new module": "(package / 'new.py').write_text('x = 1')",
    "a new start-up file": "(package.parent / 'a.pth').write_text('import os')",
    "a module is gone": "(package / 'stats.py').rename(package / 'other.py')",
    "a folder with the same content": """
shutil.copytree(package / 'gate', package / 'gate2')
shutil.rmtree(package / 'gate')
(package / 'gate2').rename(package / 'gate')
""",
    "a compiled module": """
(package / '__pycache__').mkdir(exist_ok=True)
(package / '__pycache__' / 'stats.cpython-311.pyc').write_text('')
""",
    "a module of the same size and time": """
found = (package / 'stats.py').stat()
(package / 'stats.py').write_bytes((package / 'stats.py').read_bytes()[::-1])
os.utime(package / 'stats.py', ns=(found.st_atime_ns, found.st_mtime_ns))
""",
}


@pytest.mark.exhaustive(after=3)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_tool_that_was_changed_says_nothing_and_its_step_is_red(step, change):
    done = step.run(f"import os, pathlib, shutil\npackage = pathlib.Path({str(step.package)!r})\n{change}\n", "pass")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "::error title=agent-eval::files of agent-eval itself were changed" in done.stdout
    assert step.files["GITHUB_OUTPUT"].read_text().rstrip().splitlines()[-2] == "verdict=inconclusive"


def test_where_nobody_interferes_the_step_is_what_the_command_made_it(step):
    """Compiled modules of ours that agents' interpreters write are no interference."""
    worker = step.package / "worker"
    done = step.run(f"import compileall; compileall.compile_dir({str(worker)!r}, quiet=1)", "pass")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(worker.rglob("*.pyc"))
    assert "pass" in step.files["GITHUB_OUTPUT"].read_text()
    assert json.dumps(step.files["GITHUB_ENV"].read_text()) == '"earlier=GITHUB_ENV\\n"'
