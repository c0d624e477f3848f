"""Named random streams: one per cause, so that changing one thing leaves every other draw as it was."""

from __future__ import annotations

from zlib import crc32

import numpy as np


def seed_sequence(seed: int, replication: int, name: str) -> np.random.SeedSequence:
    """The seeds of one cause in one replication. The name enters by its CRC-32, so the order of use is irrelevant."""
    return np.random.SeedSequence(entropy=seed, spawn_key=(replication, crc32(name.encode())))


def stream(seed: int, replication: int, name: str) -> np.random.Generator:
    """The generator of one cause ("failures", "lengths", ...) in one replication (>= 0) of a run with `seed` (>= 0)."""
    return np.random.default_rng(seed_sequence(seed, replication, name))


def substream(parent: np.random.SeedSequence, name: str) -> np.random.Generator:
    """A generator below `parent`, by name and without changing `parent` (unlike `SeedSequence.spawn`)."""
    return np.random.default_rng(
        np.random.SeedSequence(entropy=parent.entropy, spawn_key=(*parent.spawn_key, crc32(name.encode())))
    )
