"""The step logs of RL frameworks: a file for each says what its metrics mean."""
