#!/bin/sh
# Makes the project's environments from their hash-pinned locks.
#
#   environment.sh find 3.11 [PYTHON…]     print the first interpreter that is new enough, these first
#   environment.sh bootstrap DIR PYTHON    DIR with pip, uv and the build backend: what makes the others
#   environment.sh sync DIR LOCK PYTHON    make DIR, or bring it to exactly what LOCK says
#
# Network settings (index, proxy, certificates) are the machine's own: pip's and uv's. Run it from the root.
set -eu
export UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1 PIP_DISABLE_PIP_VERSION_CHECK=1
bootstrap=.venvs/bootstrap/bin

usable() { # it starts (a version manager's shim may not), is new enough, and can make environments
  "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] < tuple(map(int, sys.argv[1].split("."))))' \
    "$2" >/dev/null 2>&1
}

find_python() {
  minimum=$1; shift
  for python in "$@" python3 python3.13 python3.12 python3.11; do
    if usable "$python" "$minimum"; then command -v "$python"; return; fi
  done
  echo "found no Python $minimum or newer with its venv module (tried python3 and python3.11 to python3.13)" >&2
  echo "hint: install one (on Debian: apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python3" >&2
  return 1
}

make_bootstrap() {
  usable "$2" 3.11 || { echo "$2 is no Python 3.11 or newer with its venv module" >&2; return 1; }
  "$2" -m venv --clear "$1"
  "$1/bin/python" -m pip install --quiet --require-hashes -r requirements/bootstrap.txt
}

# uv does not read pip's configuration: where pip is sent to another index, uv is sent there too.
use_pips_index() {
  [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ] || return 0
  index=$("$bootstrap/python" -m pip config list 2>/dev/null | sed -n "s/^[^=]*\.index.url='\(.*\)'\$/\1/p" | tail -n 1)
  [ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
}

sync_environment() {
  if ! "$1/bin/python" -c '' 2>/dev/null; then
    echo "making $1 with $("$3" --version) ($3)"
    "$3" -m venv --clear --without-pip "$1"
  fi
  use_pips_index
  "$bootstrap/uv" pip sync --quiet --compile-bytecode --python "$1/bin/python" --require-hashes "$2"
}

case ${1:-} in
  find) shift; find_python "$@" ;;
  bootstrap) make_bootstrap "$2" "${3:?found no Python, see above}" ;;
  sync) sync_environment "$2" "$3" "${4:?found no Python, see above}" ;;
  *) sed -n '2,8p' "$0" >&2; exit 2 ;;
esac
