"""A quantile of whole numbers is numpy's to the last bit, without what numpy imports for it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.sim.metrics import quantile

# What `size` imports is half of its time.
NOT_NEEDED = """
import contextlib, io, sys
from fleetsim.cli.main import main
sys.argv = ["fleetsim", "size", "--batch", "64", "--len", "256", "--set", "run.steps=8"]
said = io.StringIO()
with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
    main()
assert "fleetsim.size.size" in sys.modules
print(*sorted({"numpy.ma", "numba", "pandas", "pyarrow", "fleetsim.config.engine_profile"} & set(sys.modules)))
"""


@given(st.lists(st.integers(-1000, 10**6), min_size=1), st.sampled_from([0.5, 0.99]) | st.floats(0.0, 1.0))
def test_it_is_what_numpy_says(values: list[int], q: float) -> None:
    assert quantile(np.sort(np.array(values, np.int64)), q) == np.quantile(values, q)


def test_size_imports_no_more_than_it_needs() -> None:
    done = subprocess.run([sys.executable, "-c", NOT_NEEDED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
