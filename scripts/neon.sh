#!/usr/bin/env bash
# Tests on aarch64 under qemu-user: the NEON variants of the CPU kernels against their scalar rules and between guard
# pages, the block codecs, and whole tiny models. Needs qemu-aarch64 and the Rust target; no C compiler or libraries.
#
#   scripts/neon.sh [--install] [--kernels | --operators]
#
#   --install      try to install what is missing with apt-get and rustup
#   --kernels      run only the kernels and most tests of the codecs (a sample for .ci/run)
#   --operators    run the operator suite on the NEON kernels instead of the tests
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-musl
install=no
kernels_only=no
what="tests of guard, blocks, kernels and runtime on aarch64 with NEON kernels"
for argument in "$@"; do
    case "$argument" in
        --install) install=yes ;;
        --kernels) kernels_only=yes ;;
        --operators) what="the operator suite on NEON kernels" ;;
        *) echo "neon.sh: unknown argument $argument" >&2; exit 2 ;;
    esac
done

has_target() { rustup target list --installed 2>/dev/null | grep -qx "$target"; }

if [ "$install" = yes ]; then
    root=""
    [ "$(id -u)" = 0 ] || root="sudo -n"
    package="apt-get install --yes --no-install-recommends qemu-user"
    # shellcheck disable=SC2086
    command -v qemu-aarch64 >/dev/null || timeout 120 $root $package >/dev/null 2>&1 ||
        { timeout 120 $root apt-get update && timeout 120 $root $package; } >/dev/null 2>&1 || true
    has_target || timeout 120 rustup target add "$target" >/dev/null 2>&1 || true
fi
if ! command -v qemu-aarch64 >/dev/null; then
    echo "not run: $what, which needs qemu-aarch64 (apt-get install qemu-user)"
    exit
fi
if ! has_target; then
    echo "not run: $what, which needs the standard library for it (rustup target add $target)"
    exit
fi

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER=qemu-aarch64
if [ "$what" = "the operator suite on NEON kernels" ]; then
    cargo run --locked --quiet --target "$target" -p trueup-cli -- ops test --dev cpu --isa neon | tail -n 1
    exit
fi
# These artifacts are not shared with other builds, so warnings can be errors.
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUSTFLAGS="-D warnings"
packages="-p trueup-guard -p trueup-blocks -p trueup-runtime"
# Tests start child processes through the emulator (crates/guard/src/child.rs).
emulated="--skip emulator=qemu-aarch64"
kernels="$(mktemp)"
trap 'rm -f "$kernels"' EXIT
# shellcheck disable=SC2086
cargo test --locked --target "$target" -p trueup-kernels --test integration -- --nocapture $emulated >"$kernels" 2>&1 ||
    { cat "$kernels"; exit 1; }
if grep 'skipped: the neon variant' "$kernels"; then
    echo "neon.sh: this qemu emulates a processor without NEON dot products; install a newer qemu" >&2
    exit 1
fi
if [ "$kernels_only" = yes ]; then
    # Encoders are compared with the goldens. Comparing each with its scalar rule, and random inputs, take the emulator
    # a minute more.
    cargo test --locked --quiet --target "$target" -p trueup-blocks --lib --test integration -- $emulated --skip encode_variants --skip weighted_variants --skip properties::
    echo "not run on aarch64: encoders against their scalar rules and on random inputs, whole models and the other tests of guard, blocks and runtime (scripts/neon.sh runs them), and the other crates"
    exit
fi
# shellcheck disable=SC2086
cargo clippy --locked --quiet --target "$target" $packages -p trueup-kernels --lib --tests -- -D warnings
# shellcheck disable=SC2086
cargo test --locked --quiet --target "$target" $packages --lib --test death -- $emulated
# shellcheck disable=SC2086
cargo test --locked --quiet --target "$target" $packages --test integration -- $emulated --skip session::
# Sessions take an emulator longest, and what they do beyond computing is the same on every processor.
sessions="cpu_is_near_the_oracle fusion_changes_no_bit threads_change_no_bit"
# shellcheck disable=SC2086
cargo test --locked --quiet --target "$target" -p trueup-runtime --test integration -- $emulated $sessions
echo "not run on aarch64: tests of sessions other than $sessions, and crates other than guard, blocks, kernels and runtime"
