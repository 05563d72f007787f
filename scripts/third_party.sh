# Clients and tools that nobody here wrote, for tests; sourced after lib.sh. What cannot be had is said, and the tests
# that need it are skipped.

# npm packages of tests/third_party/package.json, in the cache folder. Sets SIDECAR_TEST_NODE to the folder.
use_node_packages() {
    local cache folder
    [ -z "${SIDECAR_TEST_NODE:-}" ] || return 0
    if ! command -v npm >/dev/null 2>&1; then
        say "SKIPPED: there is no npm, so tests with Node clients (acpx, vscode-jsonrpc, MCP) will be skipped"
        return 0
    fi
    cache=$("$SIDECAR_PYTHON" -c \
        'import sys; sys.path.insert(0, sys.argv[1]); import environment; print(environment.cache_folder())' \
        "$ROOT/scripts") || return 0
    folder="$cache/node-$(cksum < "$ROOT/tests/third_party/package.json" | cut -d' ' -f1)"
    if [ ! -e "$folder/complete" ]; then
        say "installing the Node packages of the tests (once; needs the npm registry)"
        mkdir -p "$folder" && cp "$ROOT/tests/third_party/package.json" "$folder/" || return 0
        if ! (cd -- "$folder" && npm install --no-audit --no-fund --loglevel=error >install.log 2>&1 </dev/null); then
            say "SKIPPED: npm install failed (see $folder/install.log), so tests with Node clients will be skipped"
            return 0
        fi
        touch "$folder/complete"
    fi
    export SIDECAR_TEST_NODE="$folder"
}

# A browser and its driver, for the page of `sidecar inspect`.
use_chromium() {
    has_chromium && return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing Debian's chromium and chromium-driver (once; needs the package mirror)"
        { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
            chromium chromium-driver; } >/dev/null 2>&1 </dev/null
    fi
    has_chromium || say "SKIPPED: there is no chromium with its driver, so tests of the page in a browser will be skipped"
}

has_chromium() {
    command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1
}
