#!/usr/bin/env bash
# Work done again and again, at length: 10,000 tokens with context shifts, 1,000 loads of a model, prompts cancelled at
# random, 50 starts of the binary, a conversation of 500 turns. Fails where memory, handles, threads or mappings grow,
# and where a planted leak is not found.
#
#   scripts/soak.sh [NAME ...] [--count N]
set -euo pipefail
cd "$(dirname "$0")/.."
cargo test --locked --release -p trueup-cli --test soak -- --long "$@"
