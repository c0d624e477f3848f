"""Configurations of the RL frameworks as scenarios: `fleetsim scenario from verl CONFIG.yaml`.

- In: `source` finds the text, `shell`, `trees`, `python_source` and `arguments` read its form, `settings` holds what it
  says, with the versions that it pins; each framework's file says what a version changes.
- Whose it is: `detection`. What it means: rows of `frameworks.txt`, which `tables` reads; what is no row, a file a
  framework (`verl`, `trl`, `roll`, ...). Values are `reading` and gather in `draft`; `common` has what every
  configuration leaves open, `roles` the turns of a trajectory and the models beside the policy, `sides` what engines
  have beside their weights.
- What no file read: `unread_keys` names the settings that hold something.
- `convert` leads, and says what was taken and assumed; `scenario_text` writes the file.
- Out, `scenario to`: `export` leads and writes, `reversal` finds the settings. Of a configuration of the user's own
  `patch` says what must change, and `edits` changes it.
"""
