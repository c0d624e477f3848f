"""The base of every feature: a job and how it came to be, what can be said of it, results, gates."""
