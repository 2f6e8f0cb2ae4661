#!/usr/bin/env bash
# Unit tests of blocks and formats, and of what the threads of the cpu device share, under Miri, which finds undefined
# behaviour and races: the readable rules and what surrounds them. It has no AVX2: vector variants run between guard
# pages in the usual tests.
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
# Without that option Miri changes the last bits of powers of two, which tests compare with.
export MIRIFLAGS="-Zmiri-deterministic-floats"
# Skipped by name: tests that start processes of their own (variants between guard pages), since Miri starts none; the
# scalar rule of a vector variant and the layout of every byte, tried on millions of values, which take Miri too long;
# and tests on files, from which Miri is shut off. shellcheck disable=SC2086
cargo $toolchain miri test --locked -p trueup-blocks --lib -- --skip agree --skip careless --skip the_pull --skip every_byte \
    --skip bytes_are_judged
# shellcheck disable=SC2086
cargo $toolchain miri test --locked -p trueup-formats --lib -- --skip journal --skip atomic_file --skip zip --skip npz \
    --skip what_stands_in_for_a_model --skip want_of_descriptors
# Threads, the rows that they write, and the memory that weights lie in; not how more memory than there is is refused,
# for Miri ends there. shellcheck disable=SC2086
cargo $toolchain miri test --locked -p trueup-runtime --lib -- cpu::team cpu::columns cpu::pages --skip more_than_there_is
