"""What an answer prints to be typed, typed: see `reading.py` for what counts as a command, `shell.py` for the typing."""
