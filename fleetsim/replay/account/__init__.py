"""Where the seconds of a step go, and what would give them back."""
