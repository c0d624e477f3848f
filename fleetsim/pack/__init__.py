"""Several jobs on one set of GPUs: apart, by phase, or in turn."""
