"""Several jobs on one set of GPUs: apart, by phase, in turn, or together."""
