"""Whether the sentences a judge cut a text into are those of the text: none dropped, none made up, none twice.

Held against each other are letters and digits alone. A judge may leave out what only lays the text out: spaces,
markup, bullets, the numbers of a list, the address behind a link.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence

_LAYOUT = re.compile(
    r"^[ \t>*+•-]*(?:\d{1,3}|[A-Za-z]|[ivxlc]{1,6})[.)](?=\s)"  # the number of a list's item
    r"|\[\^?\d{1,3}\]"  # a reference mark
    r"|(?<=\])\([^()\s]+(?:\s\"[^\"\n]*\")?\)"  # the address behind a link
    r"|</?[A-Za-z]{1,10}\s*/?>"  # a tag without attributes
    r"|^[ \t]*```[\w+-]+[ \t]*$",  # the language of a code block
    re.MULTILINE,
)


def sentences_of(text: str, cut: Sequence[str]) -> tuple[str, ...]:
    """The sentences, in order, without those that hold nothing but layout.

    Raises ValueError when they are not the text's. It says where and quotes nothing: the text is not to be trusted,
    and the sentence goes to the judge.
    """
    signs, layout = _signs_and_layout(html.unescape(text))
    found: list[str] = []
    places = {0}  # how far the text may be covered: "1. 1" begins with a number that may be left out, or not
    for number, sentence in enumerate(cut, 1):
        said = "".join(_signs(html.unescape(sentence)))
        if not said:
            continue
        begins = {place for place in _reached(places, layout) if signs.startswith(said, place)}
        if not begins:
            raise ValueError(
                f"sentence {number} is not what follows in the text: it is not copied word by word, is there twice, "
                "or something before it was left out"
            )
        places = {begin + len(said) for begin in begins}
        if not all(all(layout[begin : begin + len(said)]) for begin in begins):
            found.append(sentence.strip())
    if not any(all(layout[place:]) for place in places):
        raise ValueError(
            f"the end of the text, its last {len(signs) - max(places)} letters and digits, is in no sentence"
        )
    return tuple(found)


def _reached(places: Iterable[int], layout: Sequence[bool]) -> set[int]:
    """These places, and those after layout that was left out."""
    reached: set[int] = set()
    for place in places:
        at = place
        while at not in reached:
            reached.add(at)
            if at < len(layout) and layout[at]:
                at += 1
    return reached


def has_words(text: str) -> bool:
    """Whether there is anything in it to cut: an emoji alone is one sentence, however it is looked at."""
    return any(True for _ in _signs(text))


def _signs(text: str) -> Iterable[str]:
    for character in text:
        yield from _sign(character)


def _sign(character: str) -> str:
    """Its letters and digits, however it is composed: without accents, case and width."""
    if character.isascii():
        return character.lower() if character.isalnum() else ""
    plain = unicodedata.normalize("NFKD", character).casefold()
    return "".join(one for one in plain if one.isalnum())


def _signs_and_layout(text: str) -> tuple[str, list[bool]]:
    """The signs of a text, and of each whether it may be left out."""
    free = {place for match in _LAYOUT.finditer(text) for place in range(*match.span())}
    signs: list[str] = []
    layout: list[bool] = []
    for place, character in enumerate(text):
        here = _sign(character)
        signs.append(here)
        layout += [place in free] * len(here)
    return "".join(signs), layout
