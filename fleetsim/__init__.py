"""fleetsim: how many rollout instances an RL post-training job needs, and why its trainer idles."""

__version__ = "0.1.0"
