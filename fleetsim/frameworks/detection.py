"""Whose configuration is this? Told by keys that only one framework has, so that a mix-up is an error with a name."""

from __future__ import annotations

from fleetsim.errors import InputError, Problem
from fleetsim.frameworks.settings import RunSettings
from fleetsim.frameworks.tables import FRAMEWORKS, OTHER_JOBS

_ENOUGH = 2
_REMEDY = "give a configuration of RL with a rollout"
_TRAINS_NOTHING = next(row[2] for row in OTHER_JOBS if row[0] == "a command that trains nothing").split(", ")


def marks(settings: RunSettings) -> dict[str, int]:
    """How many of its marks each framework has in these settings."""
    counts = {}
    for framework, known in FRAMEWORKS.items():
        counts[framework] = sum(map(settings.has, known.marks)) + 2 * settings.runs(*known.programs)
    if counts["ms-swift"] and not settings.runs(*FRAMEWORKS["trl"].programs):
        counts["trl"] = 0  # ms-swift takes TRL's arguments as well
    return counts


def expect(settings: RunSettings, framework: str) -> None:
    """Raises InputError for settings that are plainly another framework's, or no training with a rollout."""
    other, known = _mixed_up(settings, framework), FRAMEWORKS[framework]
    for what, (with_, without, why, *programs) in known.told["instead"].items() if other is None else ():
        started = not programs or settings.runs(*programs[0].split(", "))
        if started and settings.has(*with_.split(", ")) and not settings.has(*without.split(", ")):
            raise InputError([Problem("CONFIG", what, why, _REMEDY)])
    rollout = settings.get("rollout_function_path", "loss_type")  # slime's
    if rollout is not None and "sft" in str(rollout[1]):
        problem = Problem("CONFIG", f"{rollout[0].key} = {rollout[1]}", "no rollout to plan: fine-tuning", _REMEDY)
        raise InputError([problem])
    recipe = settings.runs(*known.told["recipe"]) and not settings.runs(*_TRAINS_NOTHING)  # one may be a distillation
    own = settings.has(*known.marks) or recipe
    other = other or (None if own else other_job(settings))
    if other is not None:
        raise InputError([other])
    for switch, (why,) in known.told["only"].items():
        found = settings.get(switch)
        if found is not None and str(found[1]).lower() == "true":
            raise InputError([Problem(found[0].key, found[1], why, _REMEDY)])


def unlike(settings: RunSettings, framework: str) -> Problem | None:
    """That a file with settings of its own has none by which this framework is known, and does not start it."""
    values = [setting.value for setting in settings.found.values()]
    word = len(values) == 1 and not isinstance(values[0], list)
    if word or marks(settings)[framework]:  # one word of the user's own: he is told what it lacks
        return None
    rule = f"holds no setting of {framework}, and does not start it"
    return Problem("CONFIG", None, rule, "give its configuration file, launch script or flags")


def hidden(settings: RunSettings) -> Problem | None:
    """That a script gives its program a file which its words alone do not tell."""
    if not settings.has_lost("config", "config_file", "config_path", "config_name"):
        return None
    return Problem("CONFIG", None, "runs with a file that is not found by the script's words", "give that file")


def other_job(settings: RunSettings, *, sections: bool = True) -> Problem | None:
    """What a file is that lacks what a rollout needs; None where nothing says it. sections: whether they count, too."""
    for what, keys, programs, why, *remedy in OTHER_JOBS:
        if (sections and settings.has(*keys.split(", "))) or settings.runs(*programs.split(", ")):
            return Problem("CONFIG", what, why, *(remedy or [_REMEDY]))
    return None


def _mixed_up(settings: RunSettings, framework: str) -> Problem | None:
    """A problem when the settings are plainly another framework's."""
    counts = marks(settings)
    if not counts[framework] and (job := other_job(settings, sections=False)) is not None:
        return job
    other = max(counts, key=lambda name: counts[name])
    if counts[framework] or counts[other] < _ENOUGH:
        return None
    return Problem(
        "FRAMEWORK", framework, f"this looks like a configuration of {other}", f"fleetsim scenario from {other} CONFIG"
    )
