"""Records to metrics, intervals over replications, and what binds."""
