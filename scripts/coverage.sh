#!/usr/bin/env bash
# Lines of the crates that read files which the fuzzing loop reaches, file by file, and behind them the lines that it
# does not.
#
#   scripts/coverage.sh [SECONDS] [SEED]     default: 300 s for all targets together, seed 1
#
# Needs llvm-profdata and llvm-cov of the compiler's LLVM or a newer one: `rustup component add llvm-tools` for any
# toolchain.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds="${1:-300}"
seed="${2:-1}"

target="$(cargo metadata --no-deps --format-version 1 | grep -o '"target_directory":"[^"]*"' | cut -d '"' -f 4)"
folder="$target/coverage"
mkdir -p "$folder"
tools="$(dirname "$(find "$(dirname "$(rustc --print sysroot)")" -name llvm-profdata -path '*rustlib*' | head -n 1)")"

# Our crates only: dependencies stay as they are built.
wrapper="$folder/rustc.sh"
printf '#!/bin/sh\nexec "$@" -C instrument-coverage\n' > "$wrapper"
chmod +x "$wrapper"
program="$(RUSTC_WORKSPACE_WRAPPER="$wrapper" cargo test --locked -p trueup-tests --test fuzz --no-run --message-format json \
    | grep '"name":"fuzz"' | grep -o '"executable":"[^"]*"' | cut -d '"' -f 4)"

rm -f "$folder"/*.profraw
(cd tests && LLVM_PROFILE_FILE="$folder/%p.profraw" "$program" --seconds "$seconds" --seed "$seed")
"$tools/llvm-profdata" merge --sparse "$folder"/*.profraw -o "$folder/fuzz.profdata"
sources=(crates/formats/src crates/tokenizer/src crates/models/src crates/verify/src/repro crates/verify/src/policy.rs crates/verify/src/baseline.rs)
"$tools/llvm-cov" report "$program" --instr-profile "$folder/fuzz.profdata" --sources "${sources[@]}" > "$folder/report.txt"
"$tools/llvm-cov" export "$program" --instr-profile "$folder/fuzz.profdata" --format lcov --sources "${sources[@]}" \
    > "$folder/fuzz.lcov"
# File, lines that are reached, lines, share.
awk -F '[:,]' '/^SF/ { file = $2; sub(".*/crates/", "", file) } /^DA/ { lines[file]++; if ($3 > 0) hit[file]++; else missed[file] = missed[file] " " $2 }
    END { for (file in lines) { printf "%-48s %5d of %5d  %3d %%\n", file, hit[file], lines[file], 100 * hit[file] / lines[file] } }' \
    "$folder/fuzz.lcov" | sort
echo "lines that are not reached: $folder/fuzz.lcov"
