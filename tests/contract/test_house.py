"""House rules a linter does not know: sizes of files and functions, reasons beside ignores, one line on top."""

from __future__ import annotations

import ast
import re
import socket
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from support.serving import serving

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LONGEST_FILE, LONGEST_FUNCTION, MOST_PARAMETERS = 700, 60, 7


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_a_source_file_is_small_and_says_what_lives_in_it(path):
    text = path.read_text()
    tree = ast.parse(text)
    assert len(text.splitlines()) <= LONGEST_FILE
    assert ast.get_docstring(tree), "a module opens with what lives in it"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < LONGEST_FUNCTION, f"{node.name} is too long"
            named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            given = path.parent.name == "cli" or path.name == "testing.py"  # by a command's flags, by google-adk
            assert given or len(named) <= MOST_PARAMETERS, f"{node.name} takes too many parameters"


@pytest.mark.parametrize("word", [r"# noqa(?!: [A-Z0-9, ]+ (#|-) )", r"# type: ignore(?!\[[a-z-, ]+\] +#)"])
def test_every_ignore_has_a_reason(word):
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in [*SOURCES, *TESTS]
        if path.name != Path(__file__).name
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(word, line)
    ]
    assert not found, "\n".join(found)


def test_no_two_public_classes_share_a_name():
    places = defaultdict(list)
    for path in SOURCES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_no_module_is_a_drawer():
    assert not [path for path in SOURCES if path.stem in {"utils", "util", "helpers", "misc", "common"}]


def test_a_server_of_tests_leaves_no_thread_and_no_socket():
    """What it leaves would be a ResourceWarning in whichever test runs when Python notices."""
    asked, connections = threading.Event(), []

    class Slow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            connections.append(self.connection)
            asked.set()
            threading.Event().wait(0.2)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    before = threading.active_count()
    with serving(Slow) as port, socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert asked.wait(10)
    assert threading.active_count() == before
    assert [connection.fileno() for connection in connections] == [-1]
    own = [path.name for path in TESTS if re.search(r"^from http.server .*HTTPServer", path.read_text(), re.MULTILINE)]
    assert own == ["serving.py"], "tests start their servers by support.serving"
