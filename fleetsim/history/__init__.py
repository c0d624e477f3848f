"""What a fleet did: Prometheus, files and run logs, read into one form (`History`).

- A Prometheus: `access`, `session` (one request), `prometheus` (one query), `discovery`, `sampling`; `read` leads.
- Files: `files` tells them apart; `openmetrics`, `long_table`, `dump`, `trackers`, and the step logs of frameworks:
  `run_log`, which looks up in `step_logs` what their metrics mean.
- Which series is which signal: `signals` (names by release), `catalogue`, `map_option` (--map), `matchers`
  (--selector).
- Series into one form: `merge`, `copies`, `ranks`, `grid`, `counters`, `bounds`. `one_job` refuses several jobs at
  once; `faults` and `presence` note what is wrong or missing.
"""
