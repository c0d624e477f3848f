"""What is wrong in a window: the checks in the order of the runbook, and what each finding costs."""
