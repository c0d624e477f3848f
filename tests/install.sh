#!/usr/bin/env bash
# What the tests need beside their own Python packages: Prometheus, Chromium, Perfetto's trace processor with both
# viewers, and the frameworks whose own parsers read what `scenario to` writes.
# What cannot be had here is named, and the tests that need it are skipped, loudly. Anything else that fails, fails.
# usage: tests/install.sh
set -euo pipefail
tests=$(cd "$(dirname "$0")" && pwd)

for part in real_prometheus browser trace frameworks/parsers; do
  "$tests/$part/install.sh" || {
    code=$?
    [ $code -eq 77 ] || exit $code
  }
done
