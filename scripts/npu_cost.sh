#!/usr/bin/env bash
# What the device npu costs by itself: nodes a second and operators of CANN a token, one token after another, on a
# simulated card that computes nothing (null_kernels). What the simulator spends on judging each call is in it, so a
# card's own library answers sooner; both are built as tests are.
#
#   scripts/npu_cost.sh
set -euo pipefail
cd "$(dirname "$0")/.."

echo "machine: $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2- | sed 's/^ *//'), $(nproc) cores"
cargo test --locked --quiet -p trueup-tests --test npu_sim -- --part cost
