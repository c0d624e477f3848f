"""The form: the settings of a job that one moves, from the table that the flags come from (`job/settings.py`)."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from fleetsim.job.settings import AGENTS, ENGINE, JOB, PRICES, SETTINGS, TARGETS, TRAINER
from fleetsim.records import as_dict

# From and to of each slider, and whether its values are whole. A number beyond them may be typed.
_SLIDERS: dict[str, tuple[float, float, bool]] = {
    "batch": (16, 16384, True),
    "len": (64, 65536, True),
    "max_len": (256, 131072, True),
    "len_cv": (0.1, 3.0, False),
    "group_size": (1, 64, True),
    "prompt_len": (16, 32768, True),
    "turns": (1, 64, True),
    "tool_s": (0.1, 600.0, False),
    "tool_tokens": (1, 16384, True),
    "sandboxes": (1, 8192, True),
    "reward_s": (0.1, 600.0, False),
    "tp": (1, 16, True),
    "slowdown": (1.0, 4.0, False),
    "trainer_step_s": (1.0, 1800.0, False),
    "trainer_gpus": (1, 512, True),
    "max_staleness": (1, 16, True),
    "sync_pause_s": (0.1, 300.0, False),
    "instance_price": (0.5, 12.0, False),
    "trainer_price": (0.5, 12.0, False),
    "worth": (0.1, 10.0, False),
    "target_idle": (0.01, 0.6, False),
}
_PANELS = (JOB, AGENTS, ENGINE, TRAINER, PRICES, TARGETS)


class FormField(Struct, frozen=True):
    """One row of the form. default: in words. low, high: of its slider, whole: of its values; words have none of them,
    but choices, beside which others may be typed."""

    name: str
    words: str
    default: str
    panel: str
    low: float | None = None
    high: float | None = None
    whole: bool = False
    choices: tuple[str, ...] = ()


def form_fields() -> list[FormField]:
    """All rows, in the order of the flags, panel by panel."""
    from fleetsim.engine.gpus import GPUS
    from fleetsim.engine.model.names import MODELS

    words = {"gpu": tuple(GPUS), "model": tuple(MODELS), "dtype": ("bfloat16", "fp8", "nvfp4", "mxfp4", "int4")}
    found = []
    for setting in sorted(SETTINGS, key=lambda one: _PANELS.index(one.panel) if one.panel in _PANELS else len(_PANELS)):
        told = (setting.name, setting.words, setting.default, setting.panel)
        if setting.name in _SLIDERS:
            found.append(FormField(*told, *_SLIDERS[setting.name]))
        elif setting.name in words:
            found.append(FormField(*told, choices=words[setting.name]))
    return found


def form() -> dict[str, Any]:
    """What the page draws: the rows, the presets that a job may start from, the frameworks whose configurations are
    read."""
    from fleetsim.config.data_files import presets
    from fleetsim.frameworks.convert import FRAMEWORKS

    rows = [as_dict(field) for field in form_fields()]
    return {"fields": rows, "presets": list(presets()), "frameworks": sorted(FRAMEWORKS)}
