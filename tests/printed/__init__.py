"""What an answer prints to be typed, typed: `reading.py` says what counts as a command, `shell.py` types it."""
