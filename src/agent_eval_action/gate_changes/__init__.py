"""What a change does to the gate itself: rules, criteria, cases and stored scores, before and after."""
