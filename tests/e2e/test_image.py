"""What is in the image, and how it is started."""

from __future__ import annotations

import json
import subprocess

import pytest

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(900)]

# Compares every module's bytecode with its source by the header's time and size, as the import system does.
STALE = """
import importlib.util, pathlib, struct, sys
root = pathlib.Path("/opt/venv/lib/python3.13/site-packages")
bad, seen = [], 0
for source in root.rglob("*.py"):
    if not all(part.isidentifier() for part in source.relative_to(root).with_suffix("").parts):
        continue  # a template, not a module
    cached = pathlib.Path(importlib.util.cache_from_source(str(source)))
    stat = source.stat()
    seen += 1
    if not cached.exists() or struct.unpack("<II", cached.read_bytes()[8:16]) != (int(stat.st_mtime), stat.st_size):
        bad.append(str(source))
print(seen, len(bad), bad[:5])
sys.exit(seen < 1000 or len(bad) > 0)
"""


def test_starts_python_in_isolated_mode_by_an_absolute_path_as_root(engine, image):
    config = json.loads(engine.docker("image", "inspect", image).stdout)[0]["Config"]
    assert config["Entrypoint"] == ["/opt/venv/bin/python", "-I", "-u", "/opt/venv/bin/agent-eval"]
    assert not config.get("User")
    assert not config.get("Cmd")
    assert config["WorkingDir"] == "/github/workspace"
    assert not [name for name in config["Env"] if name.startswith(("PYTHON", "UV_")) and "PYTHON_VERSION" not in name]
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_has_git_and_uv_and_no_compiler(engine, image):
    script = """
      git --version && /opt/venv/bin/uv --version || exit 1
      for tool in cc gcc g++ clang make ld; do
        if command -v $tool; then echo "left behind: $tool"; exit 2; fi
      done"""
    done = engine.docker("run", "--rm", *engine.options, "--entrypoint", "sh", image, "-ec", script, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_is_compiled_to_bytecode_that_python_will_use(engine, image):
    argv = ("run", "--rm", *engine.options, "--entrypoint", "/opt/venv/bin/python", image, "-I", "-c", STALE)
    done = engine.docker(*argv, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_git_accepts_a_checkout_of_another_owner(dice):
    mount = f"{dice.workspace}:/github/workspace"
    argv = ("run", "--rm", *dice.engine.options, "-v", mount, "--entrypoint", "git", dice.image, "rev-parse", "HEAD")
    assert len(dice.engine.docker(*argv).stdout.strip()) == 40


def test_carries_nothing_of_the_machine_that_built_it(engine, image):
    history = engine.docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", image).stdout
    files = engine.docker("run", "--rm", *engine.options, "--entrypoint", "ls", image, "-A", "/root", "/tmp").stdout  # noqa: S108 - the image's
    assert "index-url" not in history
    assert ".cache" not in files
    assert "uv" not in files


def test_is_small_enough_to_be_pulled_in_every_job(engine, image):
    """Compressed as a registry does it."""
    save = subprocess.Popen(["docker", "save", image], env=dict(engine.environ), stdout=subprocess.PIPE)
    compress = subprocess.Popen(["gzip", "-6"], stdin=save.stdout, stdout=subprocess.PIPE)
    size = 0
    while block := compress.stdout.read(1 << 20):
        size += len(block)
    compress.stdout.close()
    save.stdout.close()
    assert (save.wait(), compress.wait()) == (0, 0)
    assert 50e6 < size <= 260e6, f"{size / 1e6:.0f} MB compressed"


def test_imports_every_part_that_it_has(engine, image):
    """What was left out of the image (test suites, litellm, scikit-learn) is imported by nothing that is in it."""
    code = (
        "import pkgutil, importlib, agent_eval_action as package\n"
        "found = pkgutil.walk_packages(package.__path__, 'agent_eval_action.')\n"
        "names = [module.name for module in found if '.worker' not in module.name]\n"
        "[importlib.import_module(name) for name in names]\n"
        "import scipy.stats, scipy.special, pandas, openai, agentplatform._genai.evals\n"
        "print(len(names))"
    )
    argv = ("run", "--rm", *engine.options, "--entrypoint", "/opt/venv/bin/python", image, "-I", "-c", code)
    done = engine.docker(*argv, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100
