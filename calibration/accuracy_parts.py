"""docs/accuracy.md has two parts: engines, by `fit_engine.py`, and the trainer, by `fit_trainer.py`."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "accuracy.md"
TRAINER = "## The trainer\n"


def with_engines(text: str) -> str:
    """The page with this first part."""
    return text.rstrip() + "\n\n" + TRAINER + PAGE.read_text(encoding="utf-8").partition(TRAINER)[2]


def with_trainer(text: str) -> str:
    """The page with this second part, below its heading."""
    return PAGE.read_text(encoding="utf-8").partition(TRAINER)[0] + TRAINER + text.rstrip() + "\n"
