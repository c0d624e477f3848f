#!/usr/bin/env bash
# Prometheus for the tests: Debian's package (Ubuntu has it too), the programs only; no service is started by it.
# Elsewhere, or without root, it says what to do and leaves with 77: those tests are then skipped, loudly.
# usage: tests/real_prometheus/install.sh
set -euo pipefail

refuse() {
  printf 'tests/real_prometheus/install.sh: %s\n' "$1" >&2
  printf 'Any Prometheus from 2.42 on will do: put prometheus and promtool on PATH (macOS: brew install prometheus;\n' >&2
  printf 'elsewhere: a release from prometheus.io/download). The tests that need it are skipped; all others run.\n' >&2
  exit 77
}

if ! { command -v prometheus && command -v promtool; } > /dev/null; then
  command -v apt-get > /dev/null || refuse "there is no apt-get here"
  [ "$(id -u)" -eq 0 ] || refuse "apt-get needs root: sudo apt-get install prometheus"
  # A package's service starts at once unless a policy forbids it; one that is there already stays.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod +x "$policy"
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # Without the node exporter that it recommends.
  apt-get install -y -qq --no-install-recommends prometheus > /dev/null
fi
prometheus --version 2>&1 | head -1
promtool --version 2>&1 | head -1
