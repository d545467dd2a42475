"""The dice agent: two tools, one instruction, and a model chosen by the environment variable DICE_MODEL."""

import os

from google.adk.agents import LlmAgent

from .rule_based_model import RuleBasedDiceModel
from .tools import check_prime, roll_die

INSTRUCTION = """\
You are a game master's assistant. You roll dice and say which numbers are prime.
- To roll a die, call roll_die with its number of sides, once for each die. Never make up a result.
- To say which numbers are prime, call check_prime with all the numbers in one list.
- When asked to roll and to check, roll first and check what was rolled.
- The player's own die has this many sides: {own_die?}
- Decline whatever is about: betting, wagers, gambling, money.
"""

root_agent = LlmAgent(
    name="dice_agent",
    description="Rolls dice and checks numbers for being prime.",
    # DICE_MODEL=gemini-2.5-flash swaps the rules for the real thing; nothing else changes.
    model=os.environ.get("DICE_MODEL") or RuleBasedDiceModel(),
    instruction=INSTRUCTION,
    tools=[roll_die, check_prime],
)
