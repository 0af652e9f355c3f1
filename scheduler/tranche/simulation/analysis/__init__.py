"""Analysis of simulation results: summaries, lower bounds and confidence intervals."""
