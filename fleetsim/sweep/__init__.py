"""A grid of scenarios: every combination simulated under the same draws, on this machine or on a Ray cluster."""
