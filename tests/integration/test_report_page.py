"""report.html in a real browser, by mouse and by keyboard: what it shows, what it never runs, what it never loads."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from agent_eval_action.reports import REPORTS, ReportInput, results_json
from agent_eval_action.reports.html import MEDIA_BUDGET
from agent_eval_action.results.evalset import Part
from agent_eval_action.results.run_result import CastVote, Phase, TurnScore, Votes
from support.report_pages import GOLDEN, case_link, medium, recorded, report

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PWN = "document.documentElement.setAttribute('data-pwned', '1')"
ATTACK = f'"><script>{PWN}</script><img src=x onerror="{PWN}"><svg onload="{PWN}"><a href="javascript:{PWN}">'
VIEWS = ["", "#/cases", "#/history", "#/review", "#/run"]
TABS = ["compare", "judge", "runs", "time", "past", "definition"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="NOT TESTED in a browser: this machine has no Chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page whose every request but the file itself, and whose every error, fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, permissions=["clipboard-read"])
    opened = context.new_page()
    requests: list[str] = []
    errors: list[str] = []
    opened.on("request", lambda request: requests.append(request.url))
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert not errors
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []


def hostile(scenario: str) -> ReportInput:
    """Every text of a case is an attempt to run something."""
    result = results_json.read(GOLDEN / scenario / "results.json")
    (owner, *_) = result.sets
    cases = [
        case.model_copy(
            update={
                "case": f"{case.case}{ATTACK}",
                "attempts": tuple(
                    made.model_copy(
                        update={"turns": tuple(t.model_copy(update={"response": ATTACK}) for t in made.turns)}
                    )
                    for made in case.attempts
                ),
            }
        )
        for case in owner.cases
    ]
    return ReportInput(result.model_copy(update={"sets": (owner.model_copy(update={"cases": tuple(cases)}),)}))


def write(folder: Path, shown: ReportInput, change: str = "") -> str:
    path = folder / "report.html"
    text = REPORTS["html"](shown, None)
    path.write_text(text.replace("<noscript>", f"{change}<noscript>", 1), encoding="utf-8")
    return path.as_uri()


ROLL = ("dice", "basics", "roll_then_prime")
POOL = ("hotel", "rooms", "pool_question")


def first_case(shown: ReportInput) -> tuple[str, str, str]:
    view = shown.view.worst_first[0]
    return view.key.agent, view.key.eval_set, view.key.case


def names(page: Page) -> list[str]:
    return page.locator("tbody th a").all_inner_texts()


def test_the_first_view_says_the_verdict_why_and_what_next(page: Page, tmp_path: Path) -> None:
    shown = report("regressed")
    page.goto(write(tmp_path, shown))
    assert page.locator("h1").inner_text() == "✗ Blocked: 2 of 7 cases got worse, 1 could not be measured"
    assert "roll_then_prime" in page.locator(".why").inner_text()
    causes = page.locator(".worst a")
    assert causes.count() == len(shown.causes)
    causes.first.click()
    expect(page.locator("h1")).to_contain_text(first_case(shown)[2])
    assert "roll_then_prime" in page.title()


def test_a_cause_leads_to_its_cases(page: Page, tmp_path: Path) -> None:
    page.goto(write(tmp_path, report("regressed")) + "#/cases?cause=1")
    assert names(page) == ["roll_two_dice"]
    assert "The agent also calls roll_die." in page.locator("[role=status]").first.inner_text()
    page.get_by_role("button", name=re.compile("All")).click()
    assert len(names(page)) > 1


def test_cases_are_searched_filtered_and_sorted_and_the_address_keeps_it(page: Page, tmp_path: Path) -> None:
    address = write(tmp_path, report("regressed"))
    page.goto(f"{address}#/cases")
    everything = names(page)
    assert page.locator("[role=status]").first.inner_text() == f"{len(everything)} of {len(everything)} cases"
    page.get_by_role("searchbox").fill("I suppose")  # in an answer, in no name
    found = names(page)
    assert 0 < len(found) < len(everything)
    page.reload()
    assert names(page) == found
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name=re.compile("^regressed|regressed")).first.click()
    assert page.locator("tbody .status").all_inner_texts() == ["✗ regressed"] * len(names(page))
    page.get_by_role("button", name=re.compile("All")).click()
    page.get_by_role("button", name="Case", exact=True).click()
    assert names(page) == sorted(everything)
    page.get_by_role("button", name="Case", exact=True).click()
    assert names(page) == sorted(everything, reverse=True)
    assert "sort=case" in page.url
    assert "down=1" in page.url
    page.reload()
    assert names(page) == sorted(everything, reverse=True)


def test_a_case_shows_what_main_did_beside_this_change(page: Page, tmp_path: Path) -> None:
    shown = report("regressed")
    page.goto(write(tmp_path, shown) + case_link(*first_case(shown)))
    missing = page.locator(".missing").all_inner_texts()
    assert missing == ["check_prime is not called"]
    changed = page.locator(".compare mark.ins").all_inner_texts()
    assert "6" in changed, "the changed value alone is marked"
    page.get_by_role("button", name="expected").click()
    assert "left=expected" in page.url


def test_calls_are_shown_in_time_with_their_tokens(page: Page, tmp_path: Path) -> None:
    shown = recorded(report("regressed"), tmp_path)
    page.goto(write(tmp_path, shown) + case_link(*ROLL, "time"))
    calls = page.get_by_role("table", name="Calls of models and tools").locator("tbody tr").all_inner_texts()
    assert [re.split(r"\s*\t\s*", call) for call in calls] == [
        ["Turn 1", "3.00 s"],
        ["model dice", "560 + 52", "0.40 s"],
        ["tool roll_die", "4.0 ms"],
        ["wait", "0.30 s"],
        ["Turn 2", "3.00 s"],
        ["model dice", "560 + 52", "0.40 s"],
    ]
    bars = page.locator(".waterfall rect").evaluate_all("all => all.map(one => Number(one.getAttribute('x')))")
    assert bars == sorted(bars), "each begins after the one before it"
    assert page.locator(".waterfall rect.wait").count() == 1
    page.goto("about:blank")
    page.goto(write(tmp_path, report("regressed")) + case_link(*ROLL, "time"))
    expect(page.get_by_role("tabpanel")).to_contain_text("attempts.jsonl, which was not beside results.json")


def test_media_and_results_are_shown_within_a_budget(page: Page, tmp_path: Path) -> None:
    answers = (
        medium("application/pdf", b"%PDF-1.7", "bill.pdf"),
        medium("image/png", b"x" * (MEDIA_BUDGET + 1), "huge.png"),
        medium("text/html", f"<script>{PWN}</script>".encode(), "page.html"),
        medium('image/png" onerror="x', b"?", f"{ATTACK}.png"),
        Part(file_data={"mime_type": "video/mp4", "file_uri": "javascript:alert(1)"}),
    )
    page.goto(write(tmp_path, recorded(report("regressed"), tmp_path, *answers, text=ATTACK)) + case_link(*ROLL))
    seen = page.locator(".turn img").first
    assert seen.evaluate("image => [image.naturalWidth, image.alt]") == [1, "room.png, image/png, 69 bytes"]
    assert ATTACK in page.locator(".call .result").first.inner_text()
    digest = hashlib.sha256(b"x" * (MEDIA_BUDGET + 1)).hexdigest()
    panel = page.get_by_role("tabpanel")
    expect(panel).to_contain_text(f"huge.png, image/png, 2.9 MB: left out of this page, it is blobs/{digest}")
    expect(panel).to_contain_text("video/mp4: javascript:alert(1)")
    with page.expect_download() as download:
        page.get_by_text("Save bill.pdf").first.press("Enter")
    assert Path(download.value.path()).read_bytes() == b"%PDF-1.7"
    assert download.value.suggested_filename == "bill.pdf"
    with page.expect_download() as download:
        page.get_by_text("Save page.html").first.click()
    assert page.evaluate("document.documentElement.dataset.pwned") is None
    page.goto("about:blank")
    page.goto((tmp_path / "report.html").as_uri() + "#/run")
    expect(page.locator("main")).to_contain_text("1 file of the conversations did not fit into this page")


def test_only_what_differs_and_the_side_are_kept_in_the_address(page: Page, tmp_path: Path) -> None:
    shown = report("judged")
    page.goto(write(tmp_path, shown) + case_link(*POOL))
    assert page.locator(".turn").count() == 2
    only = page.get_by_role("button", name="Only what differs")
    only.press("Enter")
    expect(page.locator(".turn")).to_have_count(1)
    expect(only).to_be_focused()
    expect(page.get_by_role("tabpanel")).to_contain_text("1 turn without a difference not shown")
    page.reload()
    expect(page.locator(".turn")).to_have_count(1)


@pytest.mark.exhaustive
def test_columns_are_hidden_and_the_address_keeps_it(page: Page, tmp_path: Path) -> None:
    page.goto(write(tmp_path, report("regressed")) + "#/cases")
    page.get_by_text("Columns").click()
    page.get_by_role("checkbox", name="Tokens").press("Space")
    page.get_by_role("checkbox", name="response_match_score").uncheck()
    page.reload()
    heads = page.locator("thead th").all_inner_texts()
    assert "Tokens" not in heads
    assert "response_match_score" not in heads
    assert "Seconds" in heads
    cells = page.locator("tbody tr").first.locator("th, td")
    assert cells.count() == len(heads)


def test_the_cases_around_a_case_are_those_of_the_list(page: Page, tmp_path: Path) -> None:
    page.goto(write(tmp_path, report("regressed")) + "#/cases?group=regressed")
    listed = names(page)
    page.locator("tbody th a").first.click()
    rail = page.get_by_role("navigation", name="Cases near this one")
    assert rail.locator("a code").all_inner_texts() == listed
    rail.get_by_text(listed[1]).click()
    expect(page.locator("h1")).to_contain_text(listed[1])
    assert "group=regressed" in page.url
    page.go_back()
    expect(page.locator("h1")).to_contain_text(listed[0])


def test_the_phases_of_the_run_are_drawn(page: Page, tmp_path: Path) -> None:
    shown = report("regressed")
    phases = (
        Phase(purpose="first", attempts=7, start=1, seconds=20),
        Phase(purpose="control", attempts=1, start=22, seconds=3),
    )
    page.goto(write(tmp_path, replace(shown, result=shown.result.model_copy(update={"phases": phases}))) + "#/run")
    rows = page.get_by_role("table", name="Phases of the run").locator("tbody tr").all_inner_texts()
    assert [row.split() for row in rows] == [
        ["First", "pass", "7", "attempts", "20.0", "s"],
        ["Beside", "main's", "agent", "1", "attempt", "3.0", "s"],
    ]


def test_sentences_without_support_are_underlined_and_votes_counted(page: Page, tmp_path: Path) -> None:
    shown = report("judged")
    address = write(tmp_path, shown) + case_link(*first_case(shown))
    page.goto(address)
    assert "open all night" in page.locator(".compare .unsupported").first.inner_text()
    page.get_by_role("tab", name="Scores and judges").click()
    assert page.locator('.votes[aria-label="1 of 4 votes yes"]').count() > 0
    assert "tab=judge" in page.url


def test_each_vote_is_shown_with_its_words(page: Page, tmp_path: Path) -> None:
    shown = report("judged")
    score = TurnScore(
        turn=0,
        score=0.0,
        reason="invalid 2 of 3",
        votes=Votes(yes=1, no=2),
        cast=tuple(CastVote(yes=yes, rationale=f"{ATTACK} {yes}") for yes in (True, False, False)),
    )
    (owner, *others) = shown.result.sets
    (case, *rest) = owner.cases
    (attempt, *more) = case.attempts
    voted = attempt.scores[0].model_copy(update={"turns": (score,)})
    attempt = attempt.model_copy(update={"scores": (voted, *attempt.scores[1:])})
    case = case.model_copy(update={"attempts": (attempt, *more)})
    sets = (owner.model_copy(update={"cases": (case, *rest)}), *others)
    page.goto(
        write(tmp_path, replace(shown, result=shown.result.model_copy(update={"sets": sets})))
        + case_link(owner.agent, owner.eval_set, case.case, tab="judge")
    )
    votes = page.locator(".cast").first.locator("li").all_inner_texts()
    assert votes == [f"yes {ATTACK} True", f"no {ATTACK} False", f"no {ATTACK} False"]


def test_everything_works_by_keyboard_alone(page: Page, tmp_path: Path) -> None:
    page.goto(write(tmp_path, report("judged")))
    press = page.keyboard.press
    press("/")
    page.keyboard.type("pool")
    assert names(page) == ["pool_question"]
    press("Escape")
    press("j")
    press("Enter")
    expect(page.locator("h1")).to_contain_text("pool_question")
    page.get_by_role("tab", name="Compare").focus()
    for tab in TABS[1:]:
        press("ArrowRight")
        assert f"tab={tab}" in page.url
        assert page.locator("[role=tabpanel]").inner_text()
    press("2")
    expect(page.get_by_role("searchbox")).to_be_visible()
    page.get_by_role("searchbox").fill("")
    page.locator("tbody th a").first.focus()
    press("Enter")
    expect(page.get_by_role("tab", name="Compare")).to_be_visible()
    heading = page.locator("h1")
    before = heading.inner_text()
    press("j")
    expect(heading).not_to_have_text(before)
    press("k")
    expect(heading).to_have_text(before)
    press("3")
    expect(heading).to_have_text("History")
    press("4")
    expect(heading).to_have_text("Is the judge right?")
    press("d")
    press("a")
    assert "2 reviewed · you agree with the judge on 1 of 2" in page.locator("main [role=status]").inner_text()
    theme = page.evaluate("document.documentElement.dataset.theme")
    press("t")
    assert page.evaluate("document.documentElement.dataset.theme") != theme
    press("?")
    assert page.locator("dialog").is_visible()
    press("Escape")
    assert not page.locator("dialog").is_visible()


def test_sides_runs_and_neighbours_are_chosen_by_keyboard_alone(page: Page, tmp_path: Path) -> None:
    shown = report("regressed")
    page.goto(write(tmp_path, shown) + case_link(*first_case(shown)))
    chips = page.locator(".compare-head .chip, .chips .chip")
    names_of_chips = chips.all_inner_texts()
    assert len(names_of_chips) > 2
    for key in chips.evaluate_all("chips => chips.map(chip => chip.dataset.key)"):
        chosen = page.locator(f'.chip[data-key="{key}"]')
        before = chosen.get_attribute("aria-pressed")
        chosen.press("Enter")
        after = page.locator(f'.chip[data-key="{key}"]').get_attribute("aria-pressed")
        assert after == ("true" if key != "diff" else str(before != "true").lower()), key
        assert page.evaluate("document.activeElement.dataset.key") == key, "the focus stays"
    heading = page.locator("h1")
    first = heading.inner_text()
    page.locator('[data-step="1"]').press("Enter")
    expect(heading).not_to_have_text(first)
    page.locator('[data-step="-1"]').press("Enter")
    expect(heading).to_have_text(first)


def test_the_history_of_main_is_shown_with_what_changed_and_since_when(page: Page, tmp_path: Path) -> None:
    shown = report("regressed")
    last = shown.result.sets[-1].cases[-1].case
    page.goto(write(tmp_path, shown) + "#/history")
    changes = page.get_by_role("table", name="What changed on main").locator("tbody tr").all_inner_texts()
    assert [re.split(r"\s*[\t\n]\s*", change) for change in changes] == [
        ["0000006", "2026-05-06", "2 cases redefined: roll_then_prime", "accepted roll: meant"],
        [
            "0000004",
            "2026-05-04",
            "model of dice_agent: gemini-2 → gemini-3",
            "hallucinations_v1: judge gemini-2 → gemini-3",
        ],
    ]
    assert page.locator(".over-time .event").count() == 2
    assert page.locator(".over-time title").first.text_content() == (
        "0000004: model of dice_agent: gemini-2 → gemini-3; hallucinations_v1: judge gemini-2 → gemini-3"
    )
    for text in ("Cases that pass", "main 1,005", "main $0.250", "main 2.50 s"):
        expect(page.locator(".tiles")).to_contain_text(text)
    page.get_by_role("button", name="As a table").press("Enter")
    assert page.url.endswith("table=1")
    expect(page.get_by_role("button", name="As a table")).to_be_focused()
    expect(page.get_by_role("table", name="Means over main's runs").locator("tbody tr")).to_have_count(9)
    page.get_by_role("button", name="All cases").press("Enter")
    assert "all=1" in page.url
    row = page.get_by_role("table", name="Cases over main's runs").locator("tbody tr", has_text=last)
    assert "failing on main since 0000006" in row.inner_text()
    assert row.locator(".strip").first.get_attribute("aria-label") == "main's last 8 runs: 4 passed, 3 failed, 1 mixed"
    row.locator("a").click()
    expect(page.get_by_role("tab", name="History")).to_have_attribute("aria-selected", "true")
    outcomes = page.locator("[role=tabpanel] tbody td:last-child").all_inner_texts()
    assert outcomes == ["failed"] * 3 + ["passed"] * 2 + ["mixed"] + ["passed"] * 2
    page.goto((tmp_path / "report.html").as_uri() + "#/")
    assert page.locator(".chart").count() >= 2


def test_labels_of_the_judge_are_saved_as_json(page: Page, tmp_path: Path) -> None:
    page.goto(write(tmp_path, report("judged")) + "#/review")
    page.get_by_role("textbox", name="Note").fill("the brochure says so")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="The judge is wrong").click()
    with page.expect_download() as download:
        page.get_by_text("Save review.json").click()
    (label,) = json.loads(Path(download.value.path()).read_text())
    assert label["right"] is False
    assert label["note"] == "the brochure says so"
    assert {"case", "criterion", "turn", "judge", "asked"} <= set(label)


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_commands_links_and_cases_are_copied(page: Page, tmp_path: Path, by: str) -> None:
    def use(name: str) -> None:
        button = page.get_by_role("button", name=name, exact=name == "Copy the command")
        if by == "mouse":
            button.click()
        else:
            button.press("Enter")

    shown = report("regressed")
    page.goto(write(tmp_path, shown) + case_link(*first_case(shown)))
    use("Copy the command")
    assert page.evaluate("navigator.clipboard.readText()").startswith("agent-eval run ")
    use("Copy the command that accepts this change")
    accept = page.evaluate("navigator.clipboard.readText()")
    assert accept == 'agent-eval accept --agent dice --eval-set basics --reason "…" roll_then_prime'
    use("Copy this case as JSON")
    assert json.loads(page.evaluate("navigator.clipboard.readText()"))["case"] == first_case(shown)[2]
    use("Copy a link")
    assert page.evaluate("navigator.clipboard.readText()") == page.url


@pytest.mark.exhaustive
@pytest.mark.parametrize("scenario", ["regressed", "judged"])
def test_no_view_has_a_barrier_or_scrolls_sideways(page: Page, tmp_path: Path, scenario: str) -> None:
    bill = medium("application/pdf", b"%PDF-1.7", "bill.pdf")
    shown = recorded(report(scenario), tmp_path, bill, medium("audio/wav", b"RIFF", "answer.wav"))
    address = write(tmp_path, shown)
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        for view in [*VIEWS, "#/history?table=1&all=1", *(case_link(*first_case(shown), tab) for tab in TABS)]:
            page.goto("about:blank")
            page.set_viewport_size({"width": 1280, "height": 900})
            page.goto(address + view)
            found = Axe().run(page)
            assert found.violations_count == 0, f"{view} {theme}: {found.generate_report()}"
            page.set_viewport_size({"width": 375, "height": 800})
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 375, f"{view} is {wide} px wide"


@pytest.mark.parametrize("scenario", ["regressed", "hostile"])
def test_hostile_text_is_text_on_every_view(page: Page, tmp_path: Path, scenario: str) -> None:
    shown = hostile("regressed") if scenario == "regressed" else report(scenario)
    address = write(tmp_path, shown)
    for view in [*VIEWS, *(case_link(*first_case(shown), tab) for tab in TABS)]:
        page.goto("about:blank")
        page.goto(address + view)
        assert page.locator("main").inner_text()
        assert page.evaluate("document.documentElement.dataset.pwned") is None
        assert page.locator("img, iframe, object, a[href^='javascript']").count() == 0


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize(
    "inserted", [f"<script>{PWN}</script>", f'<img src="data:," onerror="{PWN}">', f'<svg onload="{PWN}"></svg>']
)
def test_the_policy_holds_where_escaping_would_have_failed(page: Page, tmp_path: Path, inserted: str) -> None:
    address = write(tmp_path, hostile("regressed"), inserted)
    page.goto(address)
    assert page.evaluate("document.documentElement.dataset.pwned") is None
    path = tmp_path / "report.html"
    path.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", path.read_text("utf-8")), "utf-8")
    page.goto(address)
    page.wait_for_function("document.documentElement.dataset.pwned")  # else the test would say nothing


@pytest.mark.exhaustive
def test_names_that_look_alike_stay_apart(page: Page, tmp_path: Path) -> None:
    shown = report("regressed")
    owner = shown.result.sets[0]
    alike = [case.model_copy(update={"case": f"twin{chr(at + 1)}"}) for at, case in enumerate(owner.cases[:2])]
    sets = (owner.model_copy(update={"cases": tuple(alike)}),)
    page.goto(write(tmp_path, ReportInput(shown.result.model_copy(update={"sets": sets}))) + "#/cases")
    links = page.locator("tbody th a", has_text="twin").evaluate_all("all => all.map(one => one.href)")
    assert len(set(links)) == 2
    said = set()
    for link in links:
        page.goto("about:blank")
        page.goto(link)
        said.add(page.locator("[role=tabpanel]").inner_text())
    assert len(said) == 2


def test_an_address_of_no_case_says_so(page: Page, tmp_path: Path) -> None:
    page.goto(write(tmp_path, report("regressed")) + "#/case/a/b/%E0%A4%A")
    assert page.locator("main").inner_text()
    page.goto("about:blank")
    page.goto((tmp_path / "report.html").as_uri() + "#/case/a/b/c")
    assert "no such case" in page.locator("main").inner_text()
