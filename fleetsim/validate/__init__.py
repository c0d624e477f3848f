"""Published runs, predicted: one scalar fitted on a baseline arm, every other arm simulated, the errors shown."""
