"""The scenario that a window implies: load, engine speed, lengths, admission, seconds."""
