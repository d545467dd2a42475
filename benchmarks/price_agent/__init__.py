"""The agent the benchmarks measure."""

from . import agent as agent
