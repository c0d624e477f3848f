#!/usr/bin/env bash
# The frameworks whose own parsers read what `fleetsim scenario to` writes: their packages, without torch and the rest
# that they depend on. They go into tests/frameworks/parsers/.packages, which git ignores: 15 MB to fetch, 90 MB on disk,
# seconds. Where they can't be had, it leaves with 77: those tests are then skipped, loudly.
# usage: tests/frameworks/parsers/install.sh [PYTHON]      PYTHON: 3.11 or newer with pip, python3 if not given
set -euo pipefail
python=${1:-python3}
here=$(cd "$(dirname "$0")" && pwd)
packages=$here/.packages

if ! cmp -s "$here/requirements.txt" "$packages/requirements.txt"; then
  rm -rf "$packages"
  "$python" -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --no-compile \
    --target "$packages" -r "$here/requirements.txt" || {
    printf 'tests/frameworks/parsers/install.sh: %s cannot install them\n' "$python" >&2
    printf 'The tests of the parsers are skipped; all others run.\n' >&2
    exit 77
  }
  cp "$here/requirements.txt" "$packages"
fi
printf 'parsers of %s\n' "$(grep -E '^(areal|openrlhf|skyrl|trl|verl)==' "$here/requirements.txt" | paste -sd ' ')"
