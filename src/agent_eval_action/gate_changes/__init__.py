"""A change's effect on the gate itself: rules, criteria, cases and stored scores, before and after."""
