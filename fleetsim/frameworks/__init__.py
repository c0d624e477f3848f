"""Configurations of the RL frameworks as scenarios: `fleetsim scenario from verl CONFIG.yaml`."""
