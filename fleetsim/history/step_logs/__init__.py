"""The step logs of RL frameworks: `rows` of any form, `console` of a framework, `frameworks` whose they are and what
their metrics mean (its tables: `frameworks.txt`), `steps` rows brought together. `run_log` leads."""
