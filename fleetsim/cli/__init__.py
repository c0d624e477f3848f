"""The command line: parse, call, render, exit code. Every command is callable from Python without it.

- `main` lists all commands; `answer` serves size, split, plan, pack, forecast and sweep, `standing` holds alerts,
  dashboard and watch, `scenarios` and `frameworks` what stands below scenario. `flags` makes options of a question's
  fields.
- How it ends: `main` (errors to exit codes), `interrupts` (Ctrl-C), `output` (10 and 12).
- What is shown: `output` on stdout, which also decides on width and colour; `terminal` for plain lines; `progress` on
  stderr.
- Help: `help`. Completion: `complete`. `installation` is what `doctor` looks at on this machine.
"""
