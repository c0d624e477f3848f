"""What siblings of a group can find of their prompt in the prefix cache."""

from __future__ import annotations


def expected_hits(group: float, prompt: float, block: int, places: float = 1.0) -> float:
    """The hit ratio of a group's prompts alone: (G - d) / G x floor((P - 1) / block) block / P.

    d: instances that a group's samples are spread over; the first sample on each computes the prompt. Full blocks are
    found, and the last token is always computed (vLLM, v1/core/kv_cache_manager.py: get_computed_blocks).
    """
    blocks = max(0, int(prompt - 1) // block) * block
    return max(0.0, group - places) / group * blocks / prompt if prompt > 0 and group > 0 else 0.0


def places_when_spread(group: float, instances: float) -> float:
    """Instances that a group's samples fall on where nothing keeps them together: n (1 - (1 - 1 / n)^G)."""
    return instances * (1.0 - (1.0 - 1.0 / instances) ** group) if instances > 1 else 1.0
