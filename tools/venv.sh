#!/usr/bin/env bash
# Make .venv ready:  tools/venv.sh base|test|bench
#
# `base` is the package with its dashboard (editable), which `make demo` shows; `test` adds what `make test` and `make check`
# need, `bench` the peers that we are measured against. Each finished set leaves a stamp in .venv; while pyproject.toml and the
# Python stay the same, the next run does nothing and needs no network. $PYTHON chooses the interpreter, else the first of 3.11
# or newer that works.
set -euo pipefail

cd "$(dirname "$0")/.."
readonly root=$PWD venv=.venv
readonly wanted=${1:-base}

say() { printf 'drumbeat: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

case $wanted in base | test | bench) ;; *) fail "tools/venv.sh base|test|bench, not '$wanted'" ;; esac

# The extra that a set is.
extra_of() { if [ "$1" = base ]; then echo web; else echo "$1"; fi; }

# What a stamp holds. It runs the environment's own Python, so a broken environment has no stamp that matches.
stamp_for() {
    "$venv/bin/python" -I -c '
import hashlib, sys
content = open("pyproject.toml", "rb").read() + "\0".join([sys.version, *sys.argv[1:]]).encode()
print(hashlib.sha256(content).hexdigest())
' "$root" "$(extra_of "$1")" 2>/dev/null
}

stamped() {
    [ -f "$venv/.stamp-$1" ] && [ "$(cat "$venv/.stamp-$1")" = "$(stamp_for "$1")" ]
}

# The set for tests holds the base.
ready() {
    stamped "$wanted" || { [ "$wanted" = base ] && stamped test; }
}

version_of() { "$1" -I -c 'import sys; print(sys.version)' 2>/dev/null; }

new_enough() { "$1" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

has_ensurepip() { "$1" -I -c 'import ensurepip, venv' 2>/dev/null; }

# One that can make an environment at once comes before one that first needs a package of the system.
choose_python() {
    local candidate first=""
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python of 3.11 or newer that runs"
        echo "$PYTHON"
        return
    fi
    for candidate in python3.11 python3.12 python3.13 python3.14 python3 python; do
        new_enough "$candidate" || continue
        if has_ensurepip "$candidate"; then echo "$candidate"; return; fi
        first=${first:-$candidate}
    done
    [ -n "$first" ] || fail "no Python of 3.11 or newer found; install one, or name it: PYTHON=/path/to/python3.11 make ..."
    echo "$first"
}

# Debian and Ubuntu keep ensurepip in a package of its own.
provide_ensurepip() {
    local python=$1 package
    package="python$("$python" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
    command -v apt-get >/dev/null || fail "$python has no ensurepip; name another one: PYTHON=/path/to/python3.11 make ..."
    [ "$(id -u)" = 0 ] || fail "$python cannot make environments yet; run: sudo apt-get install $package"
    say "installing $package, which $python needs to make environments"
    export DEBIAN_FRONTEND=noninteractive
    # First without an update: the lists are often there already, and then it takes a second.
    apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 ||
        { apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends "$package" >/dev/null; } ||
        fail "could not install $package; run: apt-get update && apt-get install $package"
    has_ensurepip "$python" || fail "$package is installed, yet $python has no ensurepip; name another: PYTHON=... make ..."
}

# An environment that we may add to: complete, made in this folder (scripts hold absolute paths), of the Python asked for.
usable() {
    [ -x "$venv/bin/python" ] && new_enough "$venv/bin/python" &&
        "$venv/bin/python" -I -c 'import pip' 2>/dev/null &&
        grep -qF "$root/$venv/bin/" "$venv/bin/pip" 2>/dev/null &&
        same_python_as_asked
}

same_python_as_asked() {
    [ -z "${PYTHON:-}" ] || [ "$(version_of "$PYTHON")" = "$(version_of "$venv/bin/python")" ]
}

create() {
    local python
    python=$(choose_python)
    has_ensurepip "$python" || provide_ensurepip "$python"
    say "making $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv" || fail "$python -m venv did not work; name another Python: PYTHON=... make ..."
}

pip_install() {
    "$venv/bin/python" -m pip install -qq --no-input --disable-pip-version-check "$@" </dev/null
}

install() {
    local target
    target=".[$(extra_of "$wanted")]"
    say "installing $target into $venv (only when pyproject.toml or Python change)"
    # Gone before pip begins: an interrupted installation leaves none.
    rm -f "$venv/.stamp-$wanted"
    pip_install --editable "$target" || fail "pip could not install $target: see above; then run the same command again"
    if [ "$wanted" = bench ] && ! pip_install --only-binary honker --editable ".[bench-honker]" 2>/dev/null; then
        say "honker has no wheel for this system: it will be missing from the table"
    fi
    stamp_for "$wanted" >"$venv/.stamp-$wanted.new"
    mv "$venv/.stamp-$wanted.new" "$venv/.stamp-$wanted"
}

# Two makes at once: the second waits, then finds the stamp.
if command -v flock >/dev/null; then
    exec 9<"tools/venv.sh"
    flock 9
fi

if same_python_as_asked && ready; then exit 0; fi
usable || create
install
