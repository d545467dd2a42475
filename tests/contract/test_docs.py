"""What the pages show can be pasted, what they quote is said, and their links lead somewhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml

from support.pages import PAGES, ROOT, Block, blocks

BIN = Path(sys.executable).parent
BLOCKS = [block for block in blocks() if block.workflow is not None]
WHOLE = [block for block in BLOCKS if re.search(r"(?m)^on:", block.text)]
INPUTS = {
    name: set(yaml.safe_load((ROOT / path).read_text())["inputs"])
    for name, path in (("org/agent-eval-action@v0", "action.yml"), ("org/agent-eval-action/host@v0", "host/action.yml"))
}
OUTPUTS = set(yaml.safe_load((ROOT / "action.yml").read_text())["outputs"])
QUOTED = (ROOT / "docs" / "troubleshooting.md").read_text()


def test_the_pages_show_workflows_and_parts_of_them(tmp_path):
    assert len(WHOLE) >= 2
    assert len(BLOCKS) >= 12
    files = []
    for number, block in enumerate(BLOCKS):
        files.append(tmp_path / f"{number:02}-{block.page.stem}-{block.number}.yml")
        files[-1].write_text(yaml.safe_dump(block.workflow))
    check = [BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_whole_workflows_have_nothing_an_auditor_would_mind(tmp_path):
    """Of ours alone is no commit to pin: it is written as users write it."""
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    for block in WHOLE:
        text = re.sub(r"(uses: org/agent-eval-action\S*@v\d).*", r"\1 # zizmor: ignore[unpinned-uses]", block.text)
        (folder / f"{block.page.stem}-{block.number}.yml").write_text(text)
    done = subprocess.run(
        [BIN / "zizmor", "--offline", "--no-progress", folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_a_step_of_ours_has_inputs_that_exist_and_others_are_pinned(block: Block):
    for step in block.steps:
        uses = step.get("uses", "")
        if uses in INPUTS:
            assert set(step.get("with", {})) <= INPUTS[uses], block.name
        elif uses and not uses.startswith("docker://ghcr.io/org/agent-eval-action:v"):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", uses), f"{uses} is pinned by no commit"
        if uses.startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False, "the agent's code could read the token"
    others = {step.get("id") for step in block.steps if step.get("uses") not in INPUTS}
    for step, output in re.findall(r"steps\.([\w-]+)\.outputs\.([\w-]+)", block.text):
        assert output in OUTPUTS or step in others


@cache
def constants() -> list[str]:
    """Every text the program can say, adjacent literals joined as Python joins them."""
    found = [(ROOT / "host" / "install.sh").read_text()]
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                found.append("\0".join(str(one.value) for one in node.values if isinstance(one, ast.Constant)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


ROWS = re.findall(r"(?m)^\| (`.+?`)(?: \([^)]*\))? \| [^|]+ \| [^|]+ \|$", QUOTED)


@pytest.mark.parametrize("quoted", ROWS)
def test_a_message_that_is_quoted_is_one_we_say(quoted: str):
    pieces = [piece.strip(" ,;:") for piece in quoted[1:-1].split("…")]
    pieces = [piece for piece in pieces if len(piece) > 3]
    assert pieces, f"{quoted} names no message"
    for piece in pieces:
        assert any(piece in text for text in constants()), f"nobody says {piece!r}"
    assert max(map(len, pieces)) >= 10, f"{quoted} could be anything"


def test_the_page_of_messages_is_read():
    assert len(ROWS) >= 30


def slug(heading: str) -> str:
    """The anchor GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    plain = re.sub(r"(?ms)^```.*?^```$", "", page.read_text())
    return {slug(heading) for heading in re.findall(r"(?m)^#+ (.+)$", plain)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_pages_and_headings_that_are_there(page: Path):
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text())
    for target, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)", text):
        place = (page.parent / target).resolve() if target else page
        assert place.exists(), f"{page.name}: {target}"
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place), f"{page.name}: {target}#{anchor}"


def test_the_readme_links_the_index_and_the_index_every_page():
    index = ROOT / "docs" / "README.md"
    assert "](docs/README.md)" in (ROOT / "README.md").read_text()
    for page in {*index.parent.glob("*.md")} - {index}:
        assert f"]({page.name})" in index.read_text(), page.name
