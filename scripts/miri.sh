#!/usr/bin/env bash
# Unit tests of blocks and formats under Miri, which finds undefined behaviour: the readable rules and what surrounds them. It has no AVX2:
# vector variants run between guard pages in the usual tests.
set -euo pipefail
cd "$(dirname "$0")/.."

toolchain=""
for candidate in "" "+nightly"; do
    # shellcheck disable=SC2086
    if cargo $candidate miri --version >/dev/null 2>&1; then
        toolchain="$candidate"
        found=yes
        break
    fi
done
if [ "${found:-no}" = no ]; then
    echo "not run: Miri, which is not installed (rustup toolchain install nightly --component miri)"
    exit
fi
# Tests that start processes of their own (variants between guard pages) are skipped by name: Miri starts none.
# shellcheck disable=SC2086
cargo $toolchain miri test --locked -p trueup-blocks --lib -- --skip agree --skip careless
# shellcheck disable=SC2086
cargo $toolchain miri test --locked -p trueup-formats --lib
