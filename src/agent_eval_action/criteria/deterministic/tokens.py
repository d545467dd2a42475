"""Words of a text in any script, as ADK 2.13 cuts them for ROUGE-1, in time linear in the text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

from agent_eval_action.criteria.deterministic.rouge_import import default_tokenizer

_EACH_A_TOKEN = (range(0x4E00, 0xA000), range(0x3040, 0x3100), range(0xAC00, 0xD7B0))
"""Ideographs, kana, hangul."""
_UNSPACED = (range(0x0E00, 0x0F00), range(0x1780, 0x1800), range(0x1000, 0x10A0))
"""Thai and Lao, Khmer, Myanmar: a base with its marks is a token."""

_UNSTEMMED = 3
"""rouge-score leaves words of up to three letters as they are."""
_WORD_LIMIT = 64
_CHUNK = 65_536
_STEMS_LIMIT = 100_000
_TABLE_LIMIT = 50_000
_ASCII_WORDS = re.compile("[a-z0-9]+")
_LONG_RUN = re.compile(r"[^\w\s\x00-\x7f]{64,}")
_JOINER = "\u034f"  # COMBINING GRAPHEME JOINER: class 0, so it ends a run that normalisation would sort


class _Spacing(dict[int, str]):
    """What ``str.translate`` puts for a character: itself, spaced where it is a token, or a space."""

    def __missing__(self, code: int) -> str:
        spaced = _space(code, chr(code))
        if len(self) < _TABLE_LIMIT:  # a text of every code point there is must not stay in memory
            self[code] = spaced
        return spaced


def _space(code: int, char: str) -> str:
    if any(code in block for block in _EACH_A_TOKEN):
        return f" {char} "
    mark = unicodedata.category(char).startswith("M")
    if any(code in block for block in _UNSPACED):
        return char if mark else f" {char}"
    return char if mark or char.isalnum() else " "


class Tokenizer:
    """Cuts a text into counted words; ASCII words go through rouge-score's own tokenizer and stemmer."""

    def __init__(self) -> None:
        self._default = default_tokenizer()
        self._spacing = _Spacing()
        self._stems: dict[str, str] = {}

    def count(self, text: str) -> Counter[str]:
        """How often each token occurs."""
        words: Counter[str] = Counter()
        if text.isascii():
            words.update(_ASCII_WORDS.findall(text.lower()))
        else:
            for chunk in _chunks(text):
                words.update(self._words(chunk))
        counts: Counter[str] = Counter()
        for word, times in words.items():
            counts[self._stems.get(word) or self._stem(word)] += times
        return counts

    def _words(self, text: str) -> list[str]:
        text = unicodedata.normalize("NFKC", _LONG_RUN.sub(_interrupted, text)).lower()
        return text.translate(self._spacing).split()

    def _stem(self, word: str) -> str:
        """A word made of ASCII letters and digits is one token of rouge-score's; others stay as they are."""
        if len(word) <= _UNSTEMMED or not word.isascii():
            return word
        stem = self._default(word)[0]
        if len(word) <= _WORD_LIMIT:
            if len(self._stems) >= _STEMS_LIMIT:
                self._stems.clear()
            self._stems[word] = stem
        return stem


def _chunks(text: str) -> Iterator[str]:
    """The text in pieces that end where a word does: normalised, one character can become eighteen."""
    start = 0
    while start < len(text):
        end = start + _CHUNK
        if end < len(text):
            space = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
            end = space if space > start else end
        yield text[start:end]
        start = end


def _interrupted(run: re.Match[str]) -> str:
    """Breaks up a run of combining marks: sorting one of n marks takes n squared steps (CPython's NFKC)."""
    text = run.group()
    if not any(map(unicodedata.combining, text)):
        return text
    return _JOINER.join(text[start : start + 30] for start in range(0, len(text), 30))
