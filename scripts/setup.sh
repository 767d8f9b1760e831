#!/usr/bin/env bash
# Make .venv with Frontdesk in it. Usage: scripts/setup.sh run|test [--browser]
#   run   what `frontdesk` needs
#   test  that, and what the tests and checks need
# A stamp per kind remembers what was installed; nothing is done while it matches the requirement files.
set -euo pipefail

kind="${1:-test}"
case "$kind" in
    run) requirements=requirements/runtime.txt ;;
    test) requirements=requirements/test.txt ;;
    *) echo "usage: scripts/setup.sh run|test" >&2; exit 2 ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root="$PWD"
venv="$root/.venv"

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# The stamp also carries the folder: a moved or copied .venv has dead shebangs and is built anew.
fingerprint() {
    printf '%s\n' "$root"
    cat pyproject.toml requirements/build.txt requirements/runtime.txt
    if [ "$1" = test ]; then cat requirements/test.txt; fi
}

current() {
    [ -x "$venv/bin/python" ] && [ -x "$venv/bin/frontdesk" ] && [ -f "$venv/.stamp-$1" ] \
        && fingerprint "$1" | cmp -s - "$venv/.stamp-$1" && "$venv/bin/python" -c '' 2>/dev/null
}

find_python() { # $1: also require ensurepip (yes|no)
    local candidate probe='import sys; assert sys.version_info >= (3, 11)'
    if [ "$1" = yes ]; then probe="$probe; import ensurepip, venv"; fi
    for candidate in ${PYTHON:-} python3 python3.11 python3.12 python3.13; do
        if "$candidate" -c "$probe" >/dev/null 2>&1; then printf '%s\n' "$candidate"; return 0; fi
    done
    return 1
}

install_debian() { # as root on a Debian system; package names follow
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y --no-install-recommends "$@" >/dev/null 2>&1 \
        || { apt-get update >/dev/null && apt-get install -y --no-install-recommends "$@" >/dev/null; }
}

can_install_debian() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

choose_python() {
    find_python yes && return 0
    local python package
    python="$(find_python no)" || fail "Python 3.11 or newer is needed (tried python3, python3.11, python3.12, python3.13)."
    package="python3-venv"
    if can_install_debian; then
        say "installing the Debian package $package" >&2
        install_debian "$package" || true
        find_python yes && return 0
        package="$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
        install_debian "$package" || true
        find_python yes && return 0
    fi
    fail "$python cannot make virtual environments: the Debian package $package is missing (apt-get install $package)."
}

install() {
    if ! [ -x "$venv/bin/python" ] || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 \
        || ! "$venv/bin/python" -c 'import sys; assert sys.version_info >= (3, 11)' 2>/dev/null; then
        local python
        python="$(choose_python)"
        say "making .venv with $("$python" --version)"
        rm -rf "$venv"
        "$python" -m venv "$venv"
    fi
    local pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet)
    say "installing $requirements"
    "${pip[@]}" install -r requirements/build.txt -r "$requirements"
    "${pip[@]}" install --no-deps --no-build-isolation --editable .
    # What the tests need contains what the program needs.
    fingerprint run > "$venv/.stamp-run"
    if [ "$kind" = test ]; then fingerprint test > "$venv/.stamp-test"; fi
}

# Browser tests drive the system's Chromium. As root it is installed; otherwise the tests say that they were skipped.
# FRONTDESK_BROWSER_TESTS=1 makes it a failure when there is none, =0 leaves it alone.
install_browser() {
    local name
    for name in chromium chromium-browser google-chrome; do
        if command -v "$name" >/dev/null 2>&1; then return 0; fi
    done
    if can_install_debian; then
        say "installing the Debian package chromium for the browser tests"
        install_debian chromium && return 0
    fi
    if [ "${FRONTDESK_BROWSER_TESTS:-}" = 1 ]; then
        fail "browser tests need Chromium: install the Debian package chromium, or unset FRONTDESK_BROWSER_TESTS."
    fi
    say "no Chromium here: the browser tests will be skipped (install the Debian package chromium to run them)"
}

if ! current "$kind"; then install; fi
if [ "$kind" = test ] && [ "${FRONTDESK_BROWSER_TESTS:-}" != 0 ]; then install_browser; fi
