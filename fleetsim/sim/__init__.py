"""The run: trainer, admission, weight sync, buffer and failures over the fleet; its records.

- `run` starts one, `replications` several. What its processes share is in `run_state`; `engines` makes the engine that
  the scenario names, `draws` the groups, `fleet` speaks to the kernel.
- The processes: `trainer` (which also lets `run.events` happen), `waiting`, `admission`,
  `buffer`, `sync`, `rolling`, `version`, `failures`, `spot`. `deadlock` says why nothing can happen any more.
- `records` is what happened; `window` leaves the warm-up out. Of these alone: `metrics`, `critical_path` and `binding`
  (what binds), `timeline`, `scrape` (what would have been exported).
- Several runs: `threads` and `processes` make them side by side, `stop` ends them.
"""
