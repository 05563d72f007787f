# Shared by the commands in this folder; sourced by bash. Finds a Python and the project's environment.

ROOT=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "== $*" >&2; }
fail() { printf '%s\n' "error: $*" >&2; exit 1; }

# The first interpreter that runs, is 3.11 or newer and can make environments; whatever `python3` may be.
find_python() {
    local candidate found=""
    for candidate in "${PYTHON:-}" python3 python python3.14 python3.13 python3.12 python3.11 \
        /usr/local/bin/python3 /usr/bin/python3 /opt/homebrew/bin/python3; do
        [ -n "$candidate" ] || continue
        candidate=$(command -v -- "$candidate" 2>/dev/null) || continue
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue
        found=$candidate
        "$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1 && { printf '%s\n' "$candidate"; return 0; }
    done
    [ -n "$found" ] || fail "no Python 3.11 or newer was found; install one, or name it: PYTHON=/path/to/python3.12 $0"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "$found cannot make environments; installing python3-venv"
        { apt-get update && apt-get install -y --no-install-recommends python3-venv; } >/dev/null 2>&1 \
            && "$found" -c 'import ensurepip, venv' >/dev/null 2>&1 && { printf '%s\n' "$found"; return 0; }
    fi
    fail "$found cannot make environments: install its venv package (Debian: apt-get install python3-venv)"
}

# Sets SIDECAR_PYTHON to the interpreter of an environment that has the project's dependencies.
# $1 is `run` or `dev`; $2 an environment to use instead, made if it is not there. An environment that a calling command
# of this folder has made already is taken over.
use_environment() {
    local base
    if [ -z "${SIDECAR_PYTHON:-}" ]; then
        base=$(find_python) || exit 1
        SIDECAR_PYTHON=$("$base" "$ROOT/scripts/environment.py" "$1" ${2:+--venv "$2"}) || exit 1
    fi
    export SIDECAR_PYTHON
    # The checkout comes first, so the code that runs is always the one that is here.
    export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"
}
