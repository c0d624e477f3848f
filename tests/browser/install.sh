#!/usr/bin/env bash
# Chromium for the tests of the pages: Debian's package. Ubuntu's is a stub that asks for snap, which a container lacks.
# Elsewhere, or without root, it says what to do and leaves with 77: those tests are then skipped, loudly.
# usage: tests/browser/install.sh
set -euo pipefail

refuse() {
  printf 'tests/browser/install.sh: %s\n' "$1" >&2
  printf 'Any Chromium or Chrome will do: put chromium on PATH, or name it in FLEETSIM_CHROMIUM (macOS: brew install\n' >&2
  printf 'chromium). The tests that need it are skipped; all others run.\n' >&2
  exit 77
}

find_one() {
  local name
  for name in "${FLEETSIM_CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do
    # A stub that asks for a snap is found, but does not run.
    if [ -n "$name" ] && command -v "$name" > /dev/null && "$name" --version 2> /dev/null; then return 0; fi
  done
  return 1
}

if ! find_one > /dev/null; then
  command -v apt-get > /dev/null || refuse "there is no apt-get here"
  [ "$(id -u)" -eq 0 ] || refuse "apt-get needs root: sudo apt-get install chromium"
  grep -qi '^ID=ubuntu' /etc/os-release && refuse "Ubuntu's package chromium is a snap"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # A sans-serif and a monospace font, so that pages have letters where nothing else brought any.
  apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core > /dev/null
fi
find_one || refuse "the Chromium that was installed does not run"
