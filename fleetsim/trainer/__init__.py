"""The trainer as a model: seconds of a training step and its memory, from the model, the batch and the GPUs."""
