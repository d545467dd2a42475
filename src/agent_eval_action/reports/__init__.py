"""Reports: one file per format, each a function of the result and a budget."""
