#!/usr/bin/env bash
# Builds the documentation as HTML in target/book. Installs mdbook into target/tools if this version is missing;
# building it takes several minutes. With --open, opens the book in a browser.
#
#   scripts/docs.sh [--open]
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.5.4

mdbook=target/tools/bin/mdbook
if command -v mdbook >/dev/null && [ "$(mdbook --version)" = "mdbook v$version" ]; then
    mdbook="$(command -v mdbook)"
elif ! [ -x "$mdbook" ] || [ "$("$mdbook" --version)" != "mdbook v$version" ]; then
    cargo install --locked --root target/tools --version "$version" --no-default-features --features search mdbook
fi
log="$("$mdbook" build "$@" docs 2>&1)" || { echo "$log" >&2; exit 1; }
echo "$log"
# mdbook only warns about HTML that it cannot parse, and drops text.
! grep -q ' WARN ' <<<"$log" || { echo "docs.sh: fix the warnings above" >&2; exit 1; }
