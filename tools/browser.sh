#!/usr/bin/env bash
# Make sure that there is a chromium for the tests of the dashboard:  tools/browser.sh
#
# Debian's own, never a downloaded one. It is installed where that can be done without asking anybody (root, apt-get); where it
# cannot be had, those tests alone are left out, and this says so in one line. It never fails: the other tests go on.
set -uo pipefail

say() { printf 'drumbeat: %s\n' "$*" >&2; }
install() { apt-get install -y -qq --no-install-recommends chromium </dev/null >/dev/null 2>&1; }

command -v chromium >/dev/null && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing chromium for the tests of the dashboard"
    export DEBIAN_FRONTEND=noninteractive
    # First without an update: the lists are often there already.
    if install || { apt-get update -qq >/dev/null 2>&1 && install; }; then exit 0; fi
fi
say "no chromium: the tests of the dashboard in a browser are left out (apt-get install --no-install-recommends chromium)"
