"""Benchmarks of the whole command; README.md explains them."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# The local model server is the tests' own.
sys.path.insert(0, str(ROOT / "tests"))
