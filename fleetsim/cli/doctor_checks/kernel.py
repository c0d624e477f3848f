"""The simulation kernel: is its machine code there, can it be kept, and does it compute what arithmetic says?"""

from __future__ import annotations

import time
from pathlib import Path

from fleetsim.cli.doctor_checks.check import Check

# On policy with all lengths equal, a step is its three parts one after the other.
TOKENS, RATE_TOK_S, TRAIN_S, SYNC_S = 1000, 2000.0, 3.0, 1.0
_TEST = {
    "workload": {"prompt_tokens": 1, "output_tokens": TOKENS, "group_size": 4},
    "engine": {"kind": "constant", "instance_tok_s": RATE_TOK_S},
    "fleet": {"instances": 2},
    "trainer": {"batch_samples": 16, "fixed_s": TRAIN_S, "gpus": 1},
    "sync": {"pause_s": 0.0, "trainer_block_s": SYNC_S},
    "admission": {"law": "barrier"},
    "run": {"steps": 6, "warmup_steps": 2},
}


def cache() -> Check:
    """The folder of the machine code: where, how large, what in it is of other versions."""
    from fleetsim.engine.compiled import CODE, cache_folder, cache_root, chosen_root, unusable

    wanted = chosen_root()
    why, root = unusable(wanted), cache_root()
    here = cache_folder()
    stale = [p for p in root.glob("kernel-*") if p != here and p.is_dir()]
    size, old = _bytes(root), sum(map(_bytes, stale))
    facts = {
        "folder": str(root),
        "chosen": str(wanted),
        "kernel": str(here / CODE),
        "bytes": size,
        "stale": [p.name for p in sorted(stale)],
        "stale_bytes": old,
        "compiled": (here / CODE).is_file(),
    }
    text = f"{root}, {size / 2**20:.1f} MiB"
    if stale:
        text += f", of which {old / 2**20:.1f} MiB in {len(stale)} folders of other versions, which may be deleted"
    if root != wanted:
        text = f"{wanted} {why}; {text} is used instead"
        return Check("cache", "warning", text, "mend its permissions, or set FLEETSIM_CACHE_DIR", facts)
    return Check("cache", "ok", text, None, facts)


def kernel(compile_now: bool) -> Check:
    """A tiny simulation against its closed form. Where the kernel has to be compiled first, which takes seconds, only
    if that was asked for."""
    from fleetsim.engine.compiled import is_compiled

    if not is_compiled() and not compile_now:
        text = "not compiled yet on this machine; the first simulation does it, which takes some seconds"
        return Check("kernel", "info", text, "fleetsim doctor --compile does it now", {"ran": False})
    from fleetsim.config.load import scenario_from_mapping
    from fleetsim.sim.metrics import metrics_of
    from fleetsim.sim.run import simulate

    began = time.perf_counter()
    found = float(metrics_of(simulate(scenario_from_mapping(_TEST)))["step_s"])
    took = time.perf_counter() - began
    return judged(found, took)


def judged(step_s: float, took_s: float) -> Check:
    """The check of a step that should last closed_form_s()."""
    wanted = closed_form_s()
    facts = {"ran": True, "step_s": step_s, "closed_form_s": wanted, "seconds": took_s}
    if not abs(step_s - wanted) <= 1e-9 * wanted:
        text = f"computes {step_s:.9g} s for a step that takes {wanted:.9g} s"
        return Check("kernel", "fault", text, "delete the cache folder; if it stays wrong, report it", facts)
    return Check("kernel", "ok", f"agrees with the closed form of a tiny fleet ({wanted:g} s a step)", None, facts)


def closed_form_s() -> float:
    """Seconds of the tiny fleet's step: eight samples share an instance; the first token comes with the free prompt."""
    each = RATE_TOK_S / 8
    return (TOKENS - 1) / each + TRAIN_S + SYNC_S


def _bytes(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
