"""A trip desk: two tools, one instruction, and a model chosen by the environment variable TRIPS_MODEL."""

import os

from google.adk.agents import Agent
from google.adk.apps import App

from .rule_based_model import RuleBasedTripsModel

DEPARTURES = {("bern", "basel"): ["08:04", "08:34"], ("bern", "geneva"): ["08:04"], ("basel", "zurich"): []}
FARES = {("bern", "basel"): 41.0, ("bern", "geneva"): 51.0, ("basel", "zurich"): 34.0}

INSTRUCTION = """\
You help travellers with trains.
- For a departure, call find_trains.
- For a price, call get_fare, and say it for all travellers together.
"""


def find_trains(origin: str, destination: str) -> dict:
    """Find this morning's departures from one city to another."""
    return {"departures": DEPARTURES.get((origin, destination), [])}


def get_fare(origin: str, destination: str) -> dict:
    """Get the fare of one traveller in francs."""
    return {"fare": FARES.get((origin, destination))}


root_agent = Agent(
    name="trips",
    # TRIPS_MODEL=gemini-2.5-flash swaps the rules for the real thing; nothing else changes.
    model=os.environ.get("TRIPS_MODEL") or RuleBasedTripsModel(),
    instruction=INSTRUCTION,
    tools=[find_trains, get_fare],
)
app = App(root_agent=root_agent, name="app")
