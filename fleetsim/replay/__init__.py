"""A window of history: observed, diagnosed, simulated again, and simulated with another fleet."""
