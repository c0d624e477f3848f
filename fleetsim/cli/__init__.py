"""The command line: parse, call, render, exit code. Every command is callable from Python without it.

- A file a command: `size`, `split`, `plan`, ...; `commands` lists them. `flags` makes options of a question's fields.
- How it ends: `main` (errors to exit codes), `interrupts` (Ctrl-C), `output` (10 and 12).
- What is shown: `output` on stdout, which also decides on width and colour; `lines` for plain ones; `progress` and
  `live_line` on stderr.
- Help: `help`, `manual`. Completion: `complete`, `complete_bash`. `doctor_checks` is what `doctor` looks at.
"""
