"""What every command says, kept as text.

`python -m tests.golden.check` compares, `python -m tests.golden.write` writes.

A golden shows that a change of the code changes nothing that a user sees. It is written anew, on purpose, only by a
change that is meant to be seen.
"""
