"""The base of every feature: a job and how it came to be, what can be said of it, results, gates.

- What can be asked: `settings` is the table of everything that has a flag; `fields`, `options`, `lengths`.
  `job` makes a scenario of it, `derived_values` what follows from it. `base_job` is what features need of a job; the
  methods that ask features stand above them, in `api/job.py`.
- Runs of it: `trials` (each count and replication once, variants under the same draws), `engine_choices`,
  `uncertainty` and `input_moves` (inputs that may be off).
- What an answer rests on: `assumptions`, `engine_source`, `nameplate`, `trainer_scaling`.
- What is done with an answer: `result`, `metrics` (and pandas, and `--fail-if`).
- What somebody types to have it simulated: `command`, `typed_words`.
- How it is worded: `facts`, `grounds` (and warnings), `words`.
"""
