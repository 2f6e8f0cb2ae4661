#!/usr/bin/env bash
# Every way of a small model under valgrind's memcheck: reads and writes outside of memory, values that were never
# written, memory that nobody can let go any more. Kernels in AVX2 and portable ones.
#
#   scripts/memcheck.sh TRUEUP
set -euo pipefail
trueup="$(realpath "$1")"
fixtures="$(realpath "$(dirname "$0")/../fixtures")"
if ! command -v valgrind >/dev/null; then
    echo "skipped: memcheck, valgrind is not installed"
    exit 0
fi
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"

checked() {
    local code=0
    valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,indirect \
        --errors-for-leak-kinds=definite,indirect --num-callers=20 --log-file=log "$trueup" "$@" --quiet >output 2>&1 || code=$?
    if [ "$code" -ne 0 ] || [ -s log ]; then
        cat output log >&2
        echo "memcheck: exit code $code: trueup $*" >&2
        exit 1
    fi
    echo "memcheck: trueup $*"
}
for model in llama2 qwen2; do
    checked convert "$fixtures/models/$model" "$model.gguf" --check
    checked quantize "$model.gguf" "$model-q4_0.gguf" -b 4
    checked quantize "$model.gguf" "$model-q8_0.gguf" -b 8 --layout split
    checked inspect "$model-q8_0.gguf" --hash
    checked tokenize "$model.gguf" -p "Once upon a time 𝄞 é"
    checked diff "$model.gguf" "$fixtures/models/$model"
    for isa in scalar avx2; do
        for file in "$model" "$model-q4_0" "$model-q8_0"; do
            checked run "$file.gguf" --ids "1 5 9" --ids 7 -n 40 -c 24 -t 2 --isa "$isa" --context-shift --ignore-eos --temp 0.8
        done
    done
    checked verify "$model-q4_0.gguf" --ids "1 5 9" --steps 1 -t 2
done
