"""report.html in a real browser: its own script runs, hostile text does not, nor what escaping would have missed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from agent_eval_action.reports import REPORTS, ReportInput, results_json

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
PWN = "document.documentElement.setAttribute('data-pwned', '1')"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="NOT TESTED in a browser: this machine has no Chromium"),
]


def dom(path: Path) -> str:
    """The page as it is after its scripts had their turn."""
    assert BROWSER is not None
    command = [
        *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *(f"--user-data-dir={path.parent / 'profile'}", "--virtual-time-budget=2000", "--dump-dom", path.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    return done.stdout.decode("utf-8", "replace")


def page(scenario: str) -> str:
    """A scenario's page in which every text of a case is an attempt to run something."""
    attack = f'"><script>{PWN}</script><img src=x onerror="{PWN}"><svg onload="{PWN}"><a href="javascript:{PWN}">'
    result = results_json.read(GOLDEN / scenario / "results.json")
    (owner, *_) = result.sets
    hostile = [
        case.model_copy(
            update={
                "case": f"{case.case}{attack}",
                "attempts": tuple(
                    one.model_copy(
                        update={"turns": tuple(t.model_copy(update={"response": attack}) for t in one.turns)}
                    )
                    for one in case.attempts
                ),
            }
        )
        for case in owner.cases
    ]
    changed = owner.model_copy(update={"cases": tuple(hostile)})
    return REPORTS["html"](ReportInput(result.model_copy(update={"sets": (changed,)})), None)


def test_the_pages_own_script_runs_and_hostile_text_does_not(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page("regressed"), encoding="utf-8")
    shown = dom(path)
    assert "data-pwned" not in shown.partition("<body")[0]
    assert re.search(r'id="count">(\d+) of \1 shown<', shown), "the filter did not run"
    assert not re.search(r'id="bar"[^>]*hidden', shown)


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize(
    "inserted", [f"<script>{PWN}</script>", f'<img src="data:," onerror="{PWN}">', f'<svg onload="{PWN}"></svg>']
)
def test_the_policy_holds_where_escaping_would_have_failed(tmp_path: Path, inserted: str) -> None:
    path = tmp_path / "report.html"
    text = page("regressed").replace("<main ", f"{inserted}<main ", 1)
    path.write_text(text, encoding="utf-8")
    assert "data-pwned" not in dom(path).partition("<body")[0]
    without = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    path.write_text(without, encoding="utf-8")
    assert "data-pwned" in dom(path).partition("<body")[0], "this would not have run anyway: the test says nothing"
