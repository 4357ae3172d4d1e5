#!/bin/sh
# Sees to what the tests need beside Python: the server programs of PostgreSQL, and Chromium.
# Installs by the system's package manager only what is missing; names the package when that fails.
# Usage: scripts/test-needs.sh PYTHON
set -eu
python="$1"

has_postgresql() {
    if [ -n "${POSTGRESQL_BIN:-}" ]; then
        [ -x "$POSTGRESQL_BIN/initdb" ]
        return
    fi
    command -v initdb >/dev/null 2>&1 && return
    for program in /usr/lib/postgresql/*/bin/initdb /usr/pgsql-*/bin/initdb; do
        [ -x "$program" ] && return
    done
    return 1
}

has_chromium() {
    if [ -n "${CHROMIUM_PATH:-}" ]; then
        [ -x "$CHROMIUM_PATH" ]
        return
    fi
    command -v chromium >/dev/null 2>&1 && return
    "$python" -c '
import os, sys
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    sys.exit(not os.path.exists(playwright.chromium.executable_path))
' >/dev/null 2>&1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        return 1
    fi
}

# install PACKAGES_FOR_APT PACKAGES_FOR_DNF PACKAGES_FOR_PACMAN; each a list of names parted by blanks
install() {
    if command -v apt-get >/dev/null 2>&1; then
        as_root apt-get update -qq || return 1
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $1
    elif command -v dnf >/dev/null 2>&1; then
        as_root dnf install -y -q $2
    elif command -v pacman >/dev/null 2>&1; then
        as_root pacman -S --noconfirm --needed $3
    else
        return 1
    fi
}

if ! has_postgresql; then
    if [ -z "${POSTGRESQL_BIN:-}" ]; then
        echo "The server programs of PostgreSQL are missing: installing them."
        install postgresql postgresql-server postgresql || true
    fi
    has_postgresql || {
        echo "The tests need PostgreSQL's initdb and pg_ctl: install the package postgresql (postgresql-server on Fedora), or name their folder with POSTGRESQL_BIN." >&2
        exit 1
    }
fi

if ! has_chromium; then
    if [ -z "${CHROMIUM_PATH:-}" ]; then
        echo "Chromium is missing: installing it."
        # A bare system has no font at all, and a page without glyphs has no sizes worth testing.
        install "chromium fonts-dejavu-core" "chromium dejavu-sans-fonts" "chromium ttf-dejavu" || true
        has_chromium || "$python" -m playwright install --with-deps chromium || true
    fi
    has_chromium || {
        echo "The tests need Chromium: install the package chromium, or name the program with CHROMIUM_PATH." >&2
        exit 1
    }
fi
