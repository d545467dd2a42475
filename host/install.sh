#!/usr/bin/env bash
# Installs agent-eval, pinned with all it needs by hash, into an environment of its own under RUNNER_TEMP,
# and tells the next step where. Nothing of the job's own Python is read or changed.
#
#   TOOL_PYTHON   version or path of the tool's Python, "" for any that fits
#   TOOL_INDEX    package index, "" for the machine's own settings
set -euo pipefail
action=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$action")
home=${RUNNER_TEMP:?this is a step of a workflow}/agent-eval-tool

fail() { # one annotation, as for every other error of the tool
  echo "::error title=agent-eval::$1"
  exit 2
}

if [ "${RUNNER_OS:-}" = Windows ]; then
  fail "agent-eval does not run on Windows: use a Linux or macOS runner, or compare recorded answers there (docs/host.md)"
fi

# What an earlier step set for its own Python is not meant for ours.
unset PYTHONHOME PYTHONPATH VIRTUAL_ENV UV_PROJECT_ENVIRONMENT UV_SYSTEM_PYTHON
export UV_NO_PROGRESS=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# A hard link into uv's cache would share its file's state with every other environment: another job's installation
# would look as if somebody had changed the tool while it ran.
export UV_LINK_MODE=copy
if [ -n "${TOOL_INDEX:-}" ]; then
  export UV_DEFAULT_INDEX=$TOOL_INDEX PIP_INDEX_URL=$TOOL_INDEX
  unset UV_INDEX UV_INDEX_URL UV_EXTRA_INDEX_URL PIP_EXTRA_INDEX_URL
elif [ -n "${PIP_INDEX_URL:-}" ] && [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ]; then
  export UV_DEFAULT_INDEX=$PIP_INDEX_URL # uv reads none of pip's variables
fi

# A second step of the same job finds what the first one made.
want=$(cat "$action/wheel.txt" "$root/pyproject.toml" "$root/requirements/tool.txt" | cksum; echo "${TOOL_PYTHON:-}")
if [ "$(cat "$home/.made" 2>/dev/null || true)" != "$want" ]; then
  rm -rf "$home"
  mkdir -p "$home"
  # Away from the checkout: its uv.toml, .python-version and venv.py are the change's, and would be obeyed.
  cd "$home"
  uv=$(command -v uv || true)
  if [ -z "$uv" ]; then # any Python with venv will do for the installer
    python3 -I -m venv "$home/installer" || fail "neither uv nor a python3 with its venv module is on this runner: install one of them in a step before"
    "$home/installer/bin/python" -m pip install --quiet --require-hashes -r "$root/requirements/bootstrap.txt" \
      || fail "uv cannot be installed: is the package index reached? The input tool-index names another"
    uv=$home/installer/bin/uv
  fi
  # Not newer than what every dependency has wheels for.
  "$uv" venv --quiet --no-project --python "${TOOL_PYTHON:->=3.11,<3.14}" "$home/venv" \
    || fail "no Python from 3.11 to 3.13 for agent-eval itself is found or downloaded: the input tool-python names one"
  "$uv" pip sync --quiet --python "$home/venv/bin/python" --require-hashes "$root/requirements/tool.txt" \
    || fail "agent-eval cannot be installed: is the package index reached? The input tool-index names another"
  if grep -q '^agent-eval-action==' "$action/wheel.txt"; then
    "$uv" pip install --quiet --python "$home/venv/bin/python" --no-deps --require-hashes -r "$action/wheel.txt" \
      || fail "agent-eval cannot be installed: has the package index this version of it?"
  else # not a release: the wheel of this tree
    "$uv" venv --quiet --no-project --python "$home/venv/bin/python" "$home/build"
    "$uv" pip sync --quiet --python "$home/build/bin/python" --require-hashes "$root/requirements/bootstrap.txt"
    (cd "$root" && "$home/build/bin/python" -m hatchling build -t wheel -d "$home/dist" >/dev/null)
    "$uv" pip install --quiet --python "$home/venv/bin/python" --no-deps "$home"/dist/*.whl
  fi
  rm -rf "$home/build" "$home/dist"
  echo "$want" > "$home/.made"
fi
echo "tool=$home/venv/bin" >> "$GITHUB_OUTPUT"
