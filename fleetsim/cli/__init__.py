"""The command line: parse, call, render, exit code. Every command is callable from Python without it."""
