"""Markdown to a page with the look of a comment on GitHub: its parser (cmark-gfm), and what the site adds to it."""

from __future__ import annotations

import html
import re
from pathlib import Path

import cmarkgfm
from cmarkgfm.cmark import Options

CSS = Path(__file__).with_name("comment.css")
# Raw HTML passes as on GitHub, and a line end in a comment (unlike in a file) is a line break there.
_OPTIONS = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_HARDBREAKS
_ALERT = re.compile(
    r"<blockquote>\s*<p>\[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\](?:<br />)?\s*(.*?)</blockquote>", re.DOTALL
)
_CODE = re.compile(r'<pre lang="(\w+)"><code>(.*?)</code></pre>', re.DOTALL)
_HOW = {  # what an alert's icon is drawn of
    "TIP": "M8 1.5a4.6 4.6 0 0 0-2.6 8.4V12h5.2V9.9A4.6 4.6 0 0 0 8 1.5ZM6 14.5h4",
    "WARNING": "M8 1.8 15 14H1ZM8 6v4M8 11.6v1",
    "CAUTION": "M5 1.5h6L14.5 5v6L11 14.5H5L1.5 11V5ZM8 4.6v4M8 10.6v1",
}
_OTHER = "M8 1.5a6.5 6.5 0 1 0 .01 0ZM8 7v4.5M8 4.4v1"
_AVATAR = "M20 9a11 11 0 1 0 .01 0ZM13 20h14M15 25h10M20 9V5"


def comment_page(markdown: str) -> str:
    """The whole page of one comment; it notes its height for whoever takes its picture."""
    body = cmarkgfm.github_flavored_markdown_to_html(markdown, options=_OPTIONS)
    body = _CODE.sub(_coloured, _ALERT.sub(_alert, body))
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>comment</title><style>{CSS.read_text()}</style>"
        f'<body><svg class=avatar viewBox="0 0 40 40"><path d="{_AVATAR}"/></svg><article>'
        "<header><b>github-actions</b> <i>bot</i> commented 2 minutes ago</header>"
        f"<div class=markdown>{body}</div></article>"
        "<script>document.documentElement.dataset.height=Math.ceil(document.body.getBoundingClientRect().height)"
        "</script></body></html>"
    )


def _alert(found: re.Match[str]) -> str:
    kind = found[1]
    icon = f'<svg viewBox="0 0 16 16"><path d="{_HOW.get(kind, _OTHER)}"/></svg>'
    return f"<div class='alert {kind.lower()}'><p class=title>{icon}{kind.title()}</p><p>{found[2]}</div>"


def _coloured(found: re.Match[str]) -> str:
    language, code = found[1], found[2]
    if language == "diff":
        code = "".join(map(_diff_line, code.splitlines(keepends=True)))
    elif language == "sh":
        code = re.sub(r"&quot;.*?&quot;", lambda text: f"<span class=string>{text[0]}</span>", code)
    return f"<pre><code>{code}</code></pre>"


def _diff_line(line: str) -> str:
    kind = {"+": "added", "-": "removed", "@": "range", "#": "remark"}.get(html.unescape(line)[:1])
    return f"<span class={kind}>{line.rstrip()}</span>\n" if kind else line
