"""What a window of history shows: instances, pauses, steps, lengths, the trainer and its queue, over time."""
