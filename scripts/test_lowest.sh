#!/usr/bin/env bash
# What `make test-lowest` runs in .venv-lowest: delvec works with the lowest versions that it allows.
#
#   scripts/test_lowest.sh [workers]
set -euo pipefail
cd "$(dirname "$0")/.." >/dev/null

python=.venv-lowest/bin/python
workers=${1:-2}

"$python" --version
if ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 10))'; then
  echo "There is no Python 3.10 here, the lowest that delvec supports: this is the oldest found."
fi
"$python" -m pytest -n "$workers" --dist worksteal -m "not spark and not more and not slow" \
  --without pd --without pl --without wheel --without sdist # for which it has no packages
"$python" -m pytest -n 0 -m spark tests/docs/test_readme.py
.venv-lowest/bin/delvec demo
