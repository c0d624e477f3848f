"""Mutated inputs through the whole command line: what comes from outside ends in an answer or in an error of ours."""
