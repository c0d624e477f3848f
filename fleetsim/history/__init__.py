"""What a fleet did: Prometheus, files and run logs, read into one form (`History`).

- A Prometheus: `access`, `session` (one request), `prometheus` (one query); `read` looks up what is there, and leads.
- Files: `files` tells them apart, and trackers' runs (`tensorboard`, `wandb`); `openmetrics`, `long_table`,
  `saved_window` (--save), and the step logs of frameworks: `run_log`, which looks up in `step_logs` what they mean.
- Which series is which signal: `signals` (names by release), `catalogue`, `selection` (--map, --selector).
- Series into one form: `grid`, `merge`, `counters`. `faults` notes what is wrong, takes out what cannot be, and
  refuses several jobs at once.
"""
