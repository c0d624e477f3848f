"""The base of every feature: a job and how it came to be, what can be said of it, results, gates.

- What can be asked: `question`, `fields`, `options`, `length_options`, `history_fields`; `job` makes a scenario of it,
  `derived_values` what follows from it. `base_job` is what features need of a job; the
  methods that ask features stand above them, in `api/job.py`.
- Runs of it: `trials` (each count and replication once), `ways` (variants under the same draws), `levers` (what else
  could be changed), `uncertainty` and `input_moves` (inputs that may be off), `drafts`, `sides`.
- What an answer rests on: `assumptions`, `caveats`, `engine_source`, `measured_range`, `prices`, `trainer_scaling`.
- What is done with an answer: `result`, `metrics`, `frames` (pandas), `gate` (`--fail-if`).
- What somebody types to have it simulated: `command`, `typed_values`; `heard_run` is the run that `--run` named.
- How it is worded: `brief`, `binding`, `change`, `grounds`, `words`, `value_words`, `scenario_words`.
"""
