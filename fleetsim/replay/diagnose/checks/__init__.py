"""The questions of the runbook, one file each: `check(case) -> Draft`, a pure function of a window."""
