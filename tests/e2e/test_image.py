"""What is in the image, and how it is started."""

from __future__ import annotations

import json
import tarfile

import pytest

from support.container import compressed_bytes

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(900)]

FIXED_DATE = 315_532_800  # the first day of 1980: zip files know no earlier one

# Compares every module's bytecode with its source by the hash in the header: Python takes that bytecode unasked.
STALE = """
import importlib.util, pathlib, sys
root = pathlib.Path("/opt/venv/lib/python3.13/site-packages")
bad, seen = [], 0
for source in root.rglob("*.py"):
    if not all(part.isidentifier() for part in source.relative_to(root).with_suffix("").parts):
        continue  # a template, not a module
    cached = pathlib.Path(importlib.util.cache_from_source(str(source)))
    seen += 1
    header = b"\\1\\0\\0\\0" + importlib.util.source_hash(source.read_bytes())
    if not cached.exists() or cached.read_bytes()[4:16] != header:
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


@pytest.fixture(scope="module")
def layers(engine, image, tmp_path_factory):
    return engine.layers(image, tmp_path_factory.mktemp("layers"))


def test_is_small_enough_to_be_pulled_in_every_job(layers):
    sizes = [compressed_bytes(layer) for layer in layers]
    assert 50e6 < sum(sizes) <= 260e6, f"{[f'{size / 1e6:.1f}' for size in sizes]} MB compressed"


def contents(layer):
    with tarfile.open(layer) as opened:
        return opened.getmembers()


def test_a_release_changes_the_last_layer_alone(layers):
    """What a layer holds decides its digest: below the last there is nothing of ours, and no date of the build."""
    _base, *below, tool = [contents(layer) for layer in layers]
    ours = [member.name for member in tool if not member.isdir()]
    assert len(ours) > 200
    assert all("agent_eval_action" in name or name == "opt/venv/bin/agent-eval" for name in ours)
    assert sum(member.size for member in tool) < 10e6
    assert not [member.name for members in below for member in members if "agent_eval" in member.name]
    dates = {member.mtime for members in (*below, tool) for member in members}
    assert dates <= {FIXED_DATE, 0}  # the engine's own marks have no date


def test_imports_every_part_that_it_has(engine, image):
    """What was left out of the image (test suites, litellm, scikit-learn) is imported by nothing that is in it."""
    code = (
        "import pkgutil, importlib, agent_eval_action as package\n"
        "found = pkgutil.walk_packages(package.__path__, 'agent_eval_action.')\n"
        "names = [module.name for module in found if not {'worker', 'pytest_plugin'} & {*module.name.split('.')}]\n"
        "[importlib.import_module(name) for name in names]\n"
        "import scipy.stats, scipy.special, pandas, openai, agentplatform._genai.evals\n"
        "print(len(names))"
    )
    argv = ("run", "--rm", *engine.options, "--entrypoint", "/opt/venv/bin/python", image, "-I", "-c", code)
    done = engine.docker(*argv, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100
