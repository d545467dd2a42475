"""A PNG of few colours made small: 256 of them by index, which text on a white page does not notice.

Chromium writes three bytes a pixel. Emoji alone have more colours than there is room for, and take the nearest.
"""

from __future__ import annotations

import zlib
from collections import Counter
from pathlib import Path

_PIXEL = 3  # bytes: Chromium writes no alpha for an opaque page
_COLOURS = 256

_Colour = tuple[int, ...]


def shrink(image: Path) -> None:
    """Write the picture anew with a palette; what is not as Chromium writes it stays as it is."""
    data = image.read_bytes()
    chunks = _chunks(data)
    head = chunks[0][1]
    width, height = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
    if head[8:] != bytes((8, 2, 0, 0, 0)):  # 8 bits, RGB, not interlaced
        return
    raw = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    rows = _unfiltered(raw, width * _PIXEL)
    pixels = [list(zip(row[::3], row[1::3], row[2::3], strict=True)) for row in rows]
    counted = Counter(pixel for row in pixels for pixel in row)
    palette, index = _palette(counted)
    packed = b"".join(b"\0" + bytes(map(index.__getitem__, row)) for row in pixels)
    image.write_bytes(
        data[:8]
        + _chunk(b"IHDR", width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((8, 3, 0, 0, 0)))
        + _chunk(b"PLTE", b"".join(map(bytes, palette)))
        + _chunk(b"IDAT", zlib.compress(packed, 9))
        + _chunk(b"IEND", b"")
    )


def _palette(counted: Counter[_Colour]) -> tuple[list[_Colour], dict[_Colour, int]]:
    """The colours kept, and for every colour the number of its nearest; the next kept is whatever is furthest off.

    Weighed by how many pixels have it: a small orange sign stays orange, and not every grey of a letter is kept.
    """
    palette: list[_Colour] = []
    off, index = {colour: float(count) for colour, count in counted.items()}, dict.fromkeys(counted, 0)
    far = dict.fromkeys(counted, float("inf"))
    while len(palette) < _COLOURS and off[worst := max(off, key=off.__getitem__)]:
        palette.append(worst)
        for colour, count in counted.items():
            distance = sum((a - b) ** 2 for a, b in zip(colour, worst, strict=True))
            if distance < far[colour]:
                far[colour], off[colour], index[colour] = distance, float(count * distance), len(palette) - 1
    return palette, index


def _chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 8
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += length + 12
    return found


def _chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")


def _unfiltered(raw: bytes, length: int) -> list[bytes]:
    """The rows as they are, without PNG's filters (RFC 2083, section 6)."""
    above, rows = bytes(length), []
    for start in range(0, len(raw), length + 1):
        how, row = raw[start], bytearray(raw[start + 1 : start + 1 + length])
        for at in range(length if how else 0):
            left, corner = (row[at - _PIXEL], above[at - _PIXEL]) if at >= _PIXEL else (0, 0)
            row[at] = (row[at] + _predicted(how, left, above[at], corner)) & 255
        above = bytes(row)
        rows.append(above)
    return rows


def _predicted(how: int, left: int, above: int, corner: int) -> int:
    if how < 3:  # left, above
        return left if how == 1 else above
    if how == 3:  # their mean
        return (left + above) // 2
    guess = left + above - corner  # Paeth: whichever of the three is nearest
    return min((left, above, corner), key=lambda one: abs(guess - one))
