"""The fit: durations become the coefficients of a step time, each with its interval. No engine, no file."""
