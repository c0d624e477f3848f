#!/usr/bin/env bash
# `pip install ARGUMENTS` into the virtual environment VENV: by uv, which takes a tenth of the time; by pip itself where uv
# cannot be had or finds less (uv reads no pip.conf).
# usage: tests/pip.sh VENV ARGUMENTS
set -euo pipefail
venv=$1
shift

# uv looks where the environment tells pip to look.
[ -z "${PIP_FIND_LINKS:-}" ] || export UV_FIND_LINKS="${PIP_FIND_LINKS// /,}"
[ -z "${PIP_INDEX_URL:-}" ] || export UV_DEFAULT_INDEX="$PIP_INDEX_URL"
[ -z "${PIP_EXTRA_INDEX_URL:-}" ] || export UV_INDEX="$PIP_EXTRA_INDEX_URL"
[ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE="$PIP_CERT"

pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
[ -x "$venv/bin/uv" ] || "${pip[@]}" uv || echo "tests/pip.sh: no uv, so pip installs" >&2
if [ -x "$venv/bin/uv" ] && "$venv/bin/uv" pip install --quiet --python "$venv" "$@"; then exit 0; fi
echo "tests/pip.sh: pip installs: $*" >&2
"${pip[@]}" "$@"
