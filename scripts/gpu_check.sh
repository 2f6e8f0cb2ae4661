#!/usr/bin/env bash
# Takes a machine with an NVIDIA card through all that is claimed of the device cuda, and writes down what was found. Needs the program alone, built and
# stripped, and fixtures/: no cargo, no CUDA toolkit, no Python.
#
#   scripts/gpu_check.sh TRUEUP FOLDER [STAGE...]        all stages, in this order, unless some are named
#
#   environment   the card, its driver, the processor
#   operators     the operator suite with three seeds, and once on the plain kernels
#   models        verify on every fixture in f16, q8_0 and q4_0: fused, plain, and with the plain kernels
#   sanitizers    compute-sanitizer's memcheck and racecheck on a few cases of each operator, where that is installed and the machine lets it run
#   speed         ops perf, beside what the card copies and multiplies in the same run
#   decode        bench on models of a known shape, made in memory: prompts, and tokens behind them
#
# FOLDER/STAGE.json holds what each stage found, FOLDER/result.json all of them, FOLDER/log.txt what was printed. Exit code 1 where something is wrong. For other devices and other
# sizes, as a rehearsal: DEVICE=cuda-sim ONE_OF=100 BENCH_MODEL=llama-15m BENCH_TYPES=q4_0 BENCH_PROMPTS=4 BENCH_TOKENS=2 FIXTURES=1.
set -euo pipefail

# shellcheck source=scripts/card_check.sh
source "$(dirname "$0")/card_check.sh"
all=(environment operators models sanitizers speed decode)

device="${DEVICE:-cuda}"
bench_model="${BENCH_MODEL:-llama-8b}"
bench_types="${BENCH_TYPES:-q4_0 q8_0 f16}"
bench_prompts="${BENCH_PROMPTS:-512 2048}"

environment() {
    local card="not asked: nvidia-smi is not here"
    if command -v nvidia-smi >/dev/null; then
        card="$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.memory --format=csv,noheader)"
    fi
    environment_with "$card"
}

operators() {
    for seed in 1 2 3; do suite "$seed"; done
    suite 1 --repack off
    joined "$work"/operators-*.json >"$folder/operators.json"
}

models() {
    models_as "f16 q8_0 q4_0" "" "--fusion off" "--repack off"
}

sanitizers() {
    local tool code said
    if ! command -v compute-sanitizer >/dev/null; then
        say "not run: compute-sanitizer is not here"
        printf '{"not_run": "compute-sanitizer is not here"}' >"$folder/sanitizers.json"
        return
    fi
    for tool in memcheck racecheck; do
        code=0
        try "compute-sanitizer $tool" compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 \
            "$trueup" ops test --dev "$device" --seed 1 --one-of 40 || code=$?
        said="$(grep -E '========= (ERROR|RACECHECK) SUMMARY' "$work/output" | tail -n 1 || true)"
        printf '{"tool": %s, "exit": %s, "said": %s}' "$(quoted "$tool")" "$code" "$(quoted "${said:-$last}")" >"$work/sanitizers-$tool.json"
    done
    joined "$work"/sanitizers-*.json >"$folder/sanitizers.json"
}

decode() {
    local dtype prompt
    for dtype in $bench_types; do
        for prompt in $bench_prompts; do
            benched "$dtype-$prompt" "bench $bench_model $dtype, prompt $prompt" "synth:$bench_model:$dtype" --dev "$device" --prompt "$prompt" \
                --generate "$bench_tokens" --per-op
        done
    done
    joined "$work"/decode-*.json >"$folder/decode.json"
}

run_stages
