#!/bin/sh
# Prints the first Python on this machine that is new enough and can make a virtual environment.
# $PYTHON, when set, is the only one tried. Fails with one sentence.
set -eu

without_venv=""
for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3.14 python3 python}; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue
    if "$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        exec "$candidate" -c 'import sys; print(sys.executable)'
    fi
    without_venv="$candidate"
done

if [ -n "$without_venv" ]; then
    echo "Carillon needs Python's venv module, which $without_venv lacks: install the package python3-venv (or ${without_venv}-venv)." >&2
else
    echo "Carillon needs Python 3.11 or newer and found none as ${PYTHON:-python3.13, python3.12, python3.11, python3.14, python3 or python}: install one, or name it with PYTHON=/path/to/python." >&2
fi
exit 1
