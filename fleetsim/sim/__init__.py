"""The run: trainer, admission, weight sync, buffer and failures over the fleet; its records."""
