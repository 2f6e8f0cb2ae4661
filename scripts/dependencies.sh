#!/usr/bin/env bash
# Licences, sources and known faults of all dependencies, by cargo-deny and deny.toml.
#
#   scripts/dependencies.sh [--required]     fails where cargo-deny is absent, instead of saying that nothing was
#                                            checked
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v cargo-deny >/dev/null; then
    echo "not run: licences and sources of dependencies, which needs cargo-deny (cargo install cargo-deny --locked)"
    [ "${1:-}" != --required ]
    exit
fi
cargo deny --log-level error check licenses bans sources
if cargo deny --log-level off fetch db 2>/dev/null; then
    cargo deny --log-level error check advisories
else
    echo "not run: known faults of dependencies, whose list cannot be fetched from here"
fi
