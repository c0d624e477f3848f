"""fleetsim: how many rollout instances an RL post-training job needs, and why its trainer idles.

    >>> import fleetsim as fs
    >>> result = fs.load("async-one-step", steps=12, replications=2).simulate()
    >>> sorted(result.metrics)[:2]
    ['checkpoint_fraction', 'completions_per_s']

The names below come from `fleetsim.api`, which is imported when one of them is first asked for: `import fleetsim` alone
costs nothing. Their types stand in `__init__.pyi`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

__all__ = [
    "CompareResult",
    "Estimate",
    "FleetsimError",
    "ForecastResult",
    "InfeasibleError",
    "InputError",
    "Interrupted",
    "Job",
    "Metrics",
    "OutsideError",
    "PackResult",
    "PlanResult",
    "ReplayResult",
    "SimulateResult",
    "SizeResult",
    "SplitResult",
    "StuckError",
    "SweepResult",
    "__version__",
    "calibrate",
    "compare",
    "estimate_profile",
    "load",
    "pack",
    "plan",
    "profile",
    "profiles",
    "read_config",
    "replay",
    "scenarios",
    "sweep",
    "validate",
    "watch",
]
# Functions that bear the name of a package of ours.
_ALSO_PACKAGES = frozenset({"calibrate", "compare", "pack", "plan", "replay", "sweep", "validate", "watch"})


class _Callable(ModuleType):
    """A package that is a function, too: `fleetsim.replay(...)` beside `fleetsim.replay.run`."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Calls the function of this name in `fleetsim.api`."""
        return self._function()(*arguments, **named)

    @property
    def __signature__(self) -> Any:
        """The function's, for help() and editors."""
        from inspect import signature

        return signature(self._function())

    def _function(self) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(import_module("fleetsim.api"), self.__name__.rpartition(".")[2])
        return found


class _Fleetsim(ModuleType):
    """Importing a package binds its name here, over a function of the same name; such a package becomes callable."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _ALSO_PACKAGES and isinstance(value, ModuleType):
            value.__class__ = _Callable
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Fleetsim


def __getattr__(name: str) -> Any:
    if name in _ALSO_PACKAGES:
        return import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.api"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
