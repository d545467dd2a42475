"""A hostile agent's words through the whole command: they say nothing to the runner, GitHub, a parser or a terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import junitparser
import lxml.html
import pytest

from support.command import agent_eval_bytes
from support.runner_log import commands

HOSTILE = [
    "::set-output name=x::y",
    "a\r::add-mask::y",
    "##[add-mask]secret",
    "\x1b[31mred\x1b]0;title\x07",
    "nul \0 here",
    "lone \ud800 surrogate",
    "\u202eright to left",
    "| a | b |\n|--|--|",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "@everyone #1 ![beacon](https://example.invalid/x.png)",
    "```\n</details>\n<!-- agent-eval-action:comment -->",
    "]]> <![CDATA[",
    "::add-mask::e",
    " \t::stop-commands::token",
    "fine\n::endgroup::\n::add-path::/tmp",
    "##[group]fold the rest away",
    "| " * 60 + "::set-env name=PATH::/tmp",
    "\u3000::error file=a,line=1::not mine",
    "  File \"agent.py\", line 3, in f\n    raise ValueError('found by a matcher')",
    "y" * 10_000_000,
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[bytes]]:
    """A run in which every answer, argument and tool name is hostile, against references that are not met."""
    root = tmp_path_factory.mktemp("hostile")
    (root / "bot").mkdir()
    (root / "bot" / "agent.py").write_text("root_agent = None\n")
    (root / "agent-eval.yaml").write_text("agent: bot\nevals: s.evalset.json\nrecording: recording\n")
    (root / "recording").mkdir()
    cases, lines = [], []
    for number, text in enumerate(HOSTILE):
        user = {"role": "user", "parts": [{"text": f"say {number}"}]}
        expected = {
            "user_content": user,
            "final_response": {"role": "model", "parts": [{"text": "a harmless answer"}]},
            "intermediate_data": {"tool_uses": [{"name": "harmless", "args": {}}]},
        }
        call = {"function_call": {"name": text[:200] or "x", "args": {text[:200]: text}}}
        events = [{"author": text[:100], "content": {"parts": [call]}}]
        turn = {
            "user_content": user,
            "final_response": {"role": "model", "parts": [{"text": text}]},
            "intermediate_data": {"invocation_events": events},
        }
        cases.append({"eval_id": f"case{number}", "conversation": [expected]})
        done = {"agent": "bot", "eval_set": "s", "case": f"case{number}", "repeat": 0, "case_digest": "x"}
        lines.append(json.dumps(done | {"turns": [turn]}))
    failed = {"kind": "exception", "message": "::error::" + HOSTILE[3], "traceback": "\n".join(HOSTILE[:-1])}
    cases.append({"eval_id": "broken", "conversation": [expected]})
    lines.append(json.dumps(done | {"case": "broken", "turns": [], "error": failed}))
    (root / "s.evalset.json").write_text(json.dumps({"eval_set_id": "s", "eval_cases": cases}))
    (root / "recording" / "attempts.jsonl").write_text("\n".join(lines) + "\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("INPUT_", "GITHUB_"))}
    environ = clean | {
        "GITHUB_ACTIONS": "true",
        "GITHUB_OUTPUT": str(root / "output"),
        "GITHUB_STEP_SUMMARY": str(root / "summary"),
        "INPUT_BASELINE-STORE": "file",
    }
    return root, agent_eval_bytes("run", cwd=root, env=environ)


def test_it_ends_as_it_should(ran: tuple[Path, subprocess.CompletedProcess[bytes]]) -> None:
    _, done = ran
    assert done.returncode in {1, 3}, done.stderr.decode(errors="replace")[-2000:]
    assert b"Traceback (most recent call last)" not in done.stderr


def test_the_log_moves_no_cursor_and_stays_short(ran: tuple[Path, subprocess.CompletedProcess[bytes]]) -> None:
    _, done = ran
    text = (done.stdout + done.stderr).decode()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    assert len(text) < 120_000


def test_the_runner_sees_our_commands_and_no_other(ran: tuple[Path, subprocess.CompletedProcess[bytes]]) -> None:
    _, done = ran
    assert commands(done.stdout) == []
    found = commands(done.stderr)
    assert {one.name for one in found} <= {"group", "endgroup", "error", "warning", "notice"}
    assert not [one for one in found if one.old]
    folds = [one.name for one in found if one.name in {"group", "endgroup"}]
    assert folds == ["group", "endgroup"] * (len(folds) // 2)
    assert folds
    # groups are named by phases of ours, and no group but ours can be ended
    assert {one.message.partition(":")[0] for one in found if one.name == "group"} <= {"set-up", "run", "control"}
    placed = [one for one in found if one.properties.get("file")]
    assert {one.properties["file"] for one in placed} == {"s.evalset.json"}
    last = found[-1]
    assert (last.name, last.properties["title"]) == ("error", "agent-eval: inconclusive")


@pytest.mark.parametrize("level", ["error", "warning", "notice"])
def test_no_level_has_more_annotations_than_are_shown(
    ran: tuple[Path, subprocess.CompletedProcess[bytes]], level: str
) -> None:
    _, done = ran
    mine = [one for one in commands(done.stderr) if one.name == level]
    assert len(mine) <= 10
    assert all(len(one.message.encode()) <= 4_096 for one in mine)


def test_no_line_of_the_log_is_one_that_pythons_matcher_takes(
    ran: tuple[Path, subprocess.CompletedProcess[bytes]],
) -> None:
    _, done = ran
    assert not re.search(r"(?m)^\s*File\s\"(.*)\",\sline\s(\d+),\sin\s(.*)$", done.stderr.decode())


def test_the_files_parse_and_stay_small(ran: tuple[Path, subprocess.CompletedProcess[bytes]]) -> None:
    root, _ = ran
    out = root / ".agent-eval/out"
    suites = junitparser.JUnitXml.fromfile(str(out / "junit.xml"))
    assert sum(len(suite) for suite in suites) >= 2 * (len(HOSTILE) + 1)
    assert json.loads((out / "results.json").read_bytes())["totals"]["cases"] == len(HOSTILE) + 1
    comment = (out / "comment.md").read_bytes()
    assert len(comment) <= 65_000
    assert (out / "results.json").stat().st_size < 2_000_000
    assert (out / "attempts.jsonl").stat().st_size > 20_000_000  # what the agent said is kept whole


def test_the_outputs_are_ours_alone(ran: tuple[Path, subprocess.CompletedProcess[bytes]]) -> None:
    root, _ = ran
    text = (root / "output").read_text()
    names = re.findall(r"(?m)^([a-z-]+)<<agent-eval-[0-9a-f]{32}$", text)
    outputs = ["verdict", "reason", "pass-rate", "regressions", "cost", "results", "junit", "comment", "report"]
    assert names == outputs
    values = dict(re.findall(r"(?ms)^([a-z-]+)<<(agent-eval-[0-9a-f]{32})\n.*?\n\2$", text))
    assert list(values) == names


def test_the_comment_has_the_tables_it_should_and_nothing_of_the_agents(
    ran: tuple[Path, subprocess.CompletedProcess[bytes]],
) -> None:
    root, _ = ran
    cmarkgfm = pytest.importorskip("cmarkgfm")
    page = cmarkgfm.github_flavored_markdown_to_html((root / ".agent-eval/out/comment.md").read_text())
    assert "<script" not in page
    assert "<img" not in page
    assert "<a " not in page
    assert page.count("<details") == page.count("</details>")
    tables = [table for table in page.split("<table>")[1:] if "Criterion" in table.split("</thead>")[0]]
    assert [table.count("<tr>") for table in tables] == [3]  # the head and two criteria


def test_the_page_holds_no_element_of_the_agents(ran: tuple[Path, subprocess.CompletedProcess[bytes]]) -> None:
    root, _ = ran
    tree = lxml.html.document_fromstring((root / ".agent-eval/out/report.html").read_bytes().decode())
    assert [element.tag for element in tree.body] == ["noscript", "script", "script"]
    (data,) = tree.xpath('//script[@id="data"]/text()')
    assert len(json.loads(data)["rows"]) == len(HOSTILE) + 1


def test_the_summary_is_the_report(ran: tuple[Path, subprocess.CompletedProcess[bytes]]) -> None:
    root, _ = ran
    cmarkgfm = pytest.importorskip("cmarkgfm")
    text = (root / "summary").read_text()
    assert len(text.encode()) < 1_048_576
    page = cmarkgfm.github_flavored_markdown_to_html(text)
    assert not re.search("<script|<img|<a ", page)
    assert page.count("<details") == page.count("</details>")
