"""The whole run: hours, GPU-hours, dollars, tokens to the last step, while lengths, batch and fleet change."""
