#!/usr/bin/env bash
# An environment with the oldest releases that pyproject.toml promises to work with.
# usage: tests/oldest.sh [VENV]   (default: .venv-oldest); then FLEETSIM_KERNEL=fresh VENV/bin/python -m pytest tests/engine
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
venv=${1:-$root/.venv-oldest}

python3 -m venv "$venv"
sed -n -e '/^dependencies = \[$/,/^]/s/ *"\([a-z-]*\)>=\([0-9.]*\).*/\1==\2/p' \
  -e 's/^kernel = \["\(numba\)>=\([0-9.]*\).*/\1==\2/p' -e 's/ *"\(scipy\)>=\([0-9.]*\)".*/\1==\2/p' \
  "$root/pyproject.toml" > "$venv/oldest.txt"
install=("$root/tests/pip.sh" "$venv")
"${install[@]}" -c "$venv/oldest.txt" \
  'hatchling>=1.26' hypothesis pytest pytest-xdist editables -r "$venv/oldest.txt"
# By pip, for uv would give an environment beside it this build, which has no kernel.
FLEETSIM_KERNEL=fresh "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e "$root"
"$venv/bin/python" -c 'import numba, numpy; print("numba", numba.__version__, "and numpy", numpy.__version__)'
