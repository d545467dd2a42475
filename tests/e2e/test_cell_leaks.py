"""What a pull request's files ask root for in the container: the job's variables, closed files, a spoilt control."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from support.dice_job import BREAK, ONE, commit, git, merged
from support.hostile import canary

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(900)]

JOB = ("GITHUB_TOKEN", "ACTIONS_RUNTIME_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "RUNNER_SECRET", "INPUT_GITHUB_TOKEN")
SHOWN = """
import os
for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"):
    try:
        print("GOT", name, open(os.environ[name]).read())
    except OSError as error:
        print("NOTHING", name, type(error).__name__)
"""
"""At the top of the agent's module: what it prints is in its log."""


def configured(job, text: str) -> None:
    """The example's configuration with more of its agent's options."""
    config = job.workspace / "agent-eval.yaml"
    config.write_text(config.read_text().replace("  env: [DICE_MODEL]\n", "").replace("agent:\n", f"agent:\n{text}", 1))


@pytest.mark.parametrize("option", ["env", "install_env"])
def test_a_configuration_that_names_a_variable_of_the_job_is_refused_with_its_line(job, option):
    configured(job, f"  {option}: [{', '.join(JOB)}]\n")
    commit(job)
    job.environ.update({name: canary(name.lower()) for name in JOB})
    done = job.run()
    printed = done.stdout + done.stderr
    assert done.returncode == 2, printed
    lines = (job.workspace / "agent-eval.yaml").read_text().splitlines()
    at = next(number for number, line in enumerate(lines, 1) if line.startswith(f"  {option}:"))
    assert f"agent-eval.yaml:{at}" in printed
    assert printed.count("is a variable of the CI job") >= len(JOB)


def test_root_copies_no_file_that_a_configuration_names(job):
    """Neither by a path that is closed to the agent, nor by a link that the change brings along."""
    secret = job.workspace / ".git" / "secret.pem"
    certificate = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-keyout", "-", "-out", "-"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    secret.write_text(certificate)
    (job.workspace / "link.pem").symlink_to(".git/secret.pem")
    where = "/github/workspace"
    configured(
        job,
        f"  env: {{SSL_CERT_FILE: {where}/.git/config, REQUESTS_CA_BUNDLE: {where}/link.pem,"
        f" NODE_EXTRA_CA_CERTS: {where}/.git/secret.pem}}\n",
    )
    agent = job.workspace / "dice_agent" / "agent.py"
    agent.write_text(SHOWN + agent.read_text())
    commit(job)
    subprocess.run(["chown", "-R", "1001:1001", str(job.workspace)], check=os.geteuid() == 0)
    done = job.run()
    log = (job.out / "logs" / "dice_agent.log").read_text()
    assert log.count("NOTHING") >= 3, done.stdout + done.stderr + log
    assert "GOT" not in log


def test_a_committed_dotenv_does_not_make_the_control_as_bad(job):
    config = job.workspace / "agent-eval.yaml"
    config.write_text(config.read_text().replace("threshold_on: case", "threshold_on: regression"))
    ignored = job.workspace / ".gitignore"
    ignored.write_text("".join(line for line in ignored.read_text().splitlines(True) if ".env" not in line))
    commit(job, BREAK.replace("if sides", "import os\n    if os.environ.get('SPOILT') and sides"))
    git(job, "checkout", "--quiet", "-b", "change")
    (job.workspace / "dice_agent" / ".env").write_text("SPOILT=1\n")
    git(job, "add", "-f", "dice_agent/.env")
    commit(job)
    merged(job)
    done = job.run()
    assert done.returncode == 1, done.stdout + done.stderr
    results = json.loads((job.out / "results.json").read_text())
    (case,) = [case for each in results["sets"] for case in each["cases"] if case.get("control")]
    assert case["case"] == ONE
    assert {score["score"] for made in case["control"] for score in made["scores"]} == {1.0}
