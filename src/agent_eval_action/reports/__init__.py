"""From a result to text, each format a pure function; and results.json, which is written and read."""

from __future__ import annotations
