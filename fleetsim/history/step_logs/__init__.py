"""The step logs of RL frameworks: `rows` of any form, `console` of a framework, `frameworks` whose they are,
`metric_table` what their metrics mean, `columns` what a log can say, `steps` rows brought together. `run_log` leads."""
