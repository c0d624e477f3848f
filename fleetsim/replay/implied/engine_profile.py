"""The engine speed of a window as a profile file, so that every command can use it (`--profile FILE`), and the job of a
window with that file as its engine."""

from __future__ import annotations

from fleetsim.config.engine_profile import Profile, ProfileError, Provenance, Ranges
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.engine.profile_fields import coefficients_of, limit_fields
from fleetsim.replay.implied.implied_scenario import Implied


def profile_of_window(implied: Implied, name: str, source: str, date: str) -> Profile | None:
    """The implied engine as a derived profile; None where the scenario's own engine section is all there is.

    name: how it is called. source: the window, in words. date: ISO.
    """
    if implied.engine is None:
        return None
    step_time, limits = implied.engine
    speed = implied.speed
    error = ProfileError()
    ranges = Ranges()
    if speed is not None:
        ranges = Ranges(decodes=speed.loads)
        if speed.held_out is not None:
            error = ProfileError(median=speed.held_out, what="iteration time on the second half of the window")
    e = implied.scenario.engine
    return Profile(
        name=name[:1000],
        kind="derived",
        coefficients=coefficients_of(step_time.seeing_all),
        ranges=ranges,
        limits=limit_fields(limits),
        error=error,
        provenance=Provenance(source=source, engine=e.name, model=e.model, tp=e.tp, date=date, gpu=e.gpu),
    )


def measured_by(implied: Implied, path: str) -> tuple[Scenario, Profile | None]:
    """The scenario of a window with its engine read from a profile at `path`, and that profile, which is not written.

    The scenario as it is, and None, where its own engine section says all.
    """
    scenario = implied.scenario
    profile = profile_of_window(implied, "replayed window", "the history of a window", "")
    if profile is None or scenario.engine.kind == "measured":
        return scenario, None
    engine = {"kind": "measured", "profile": path, "block_size": profile.limits.block_size}
    return with_changes(scenario, {f"engine.{name}": value for name, value in engine.items()}), profile
