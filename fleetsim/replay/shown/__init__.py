"""What a run showed, as values of a job, each with its interval."""
