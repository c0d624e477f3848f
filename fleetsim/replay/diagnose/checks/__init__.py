"""The questions of the runbook, one file each: `check(case, earlier) -> Draft`, a pure function of a window."""
