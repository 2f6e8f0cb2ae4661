#!/usr/bin/env bash
# Takes a machine with an NVIDIA card through all that is claimed of the device cuda, and writes down what was found.
# Needs the program alone, built and stripped, and fixtures/: no cargo, no CUDA toolkit, no Python.
#
#   scripts/gpu_check.sh TRUEUP FOLDER [STAGE...]        all stages, in this order, unless some are named
#
#   environment   the card, its driver, the processor
#   operators     the operator suite with three seeds, and once on the plain kernels
#   models        verify on every fixture in f16, q8_0 and q4_0: fused, plain, and with the plain kernels; on a model
#                 with rows of 256 in the types that need such rows and their relatives (WIDE_TYPES)
#   cards         two cards, where they are there: layers over both, and products divided over both, by NCCL where that
#                 is installed, and copied
#   sanitizers    compute-sanitizer's memcheck and racecheck on a few cases of each operator and on a model, whose steps
#                 are one launch and a graph, where
#                 that is installed and the machine lets it run
#   speed         ops perf, beside what the card copies and multiplies in the same run
#   decode        bench on models of a known shape, made in memory: prompts, and the tokens after them
#   kernels       the time of each kernel of a decode step, by Nsight Compute, if ncu is installed: kernels-TYPE.csv
#
# FOLDER/STAGE.json holds what each stage found, FOLDER/result.json all of them, FOLDER/log.txt what was printed. Exit
# code 1 where something is wrong. For other devices and other sizes, as a rehearsal: DEVICE=cuda-sim CARDS=cuda-simx2
# ONE_OF=100 BENCH_MODEL=llama-15m BENCH_TYPES=q4_0 BENCH_PROMPTS=4 BENCH_TOKENS=2 FIXTURES=1.
set -euo pipefail

# shellcheck source=scripts/card_check.sh
source "$(dirname "$0")/card_check.sh"
all=(environment operators models cards sanitizers speed decode kernels)

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
    suite 1 --no-repack
    joined "$work"/operators-*.json >"$folder/operators.json"
}

models() {
    wide_model
    models_as "${MODEL_TYPES:-f16 q8_0 q4_0}" "" "--fusion off" "--no-repack"
}

# A model with rows of 256, the decoded matrices of a model in q2_k to q6_k: one of the jobs that models_as adds up.
wide_model() (
    work="$work/jobs/wide"
    mkdir -p "$work"
    log="$work/log"
    wrong=0
    trap - EXIT
    if try "decode the wide model" "$trueup" quantize --type f32 fixtures/traces/k-quants.gguf "$work/f32.gguf"; then
        for dtype in ${WIDE_TYPES:-q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4 nvfp4 tq1_0 tq2_0}; do
            try "quantize wide to $dtype" "$trueup" quantize --type "$dtype" --pure "$work/f32.gguf" "$work/$dtype.gguf" || continue
            # The model has no text of its tokens.
            verdict "wide-$dtype" "$work/$dtype.gguf" --ids "1 5 9 12 30 31 7 40 22 18" || true
            rm "$work/$dtype.gguf"
        done
    fi
    echo "$wrong" >"$work/wrong"
)

# model DTYPE: a fixture of that type, at $work/DTYPE.gguf.
model() {
    [ -s "$work/$1.gguf" ] && return
    rm -f "$work/source.gguf"
    try "convert" "$trueup" convert fixtures/models/llama3-tied "$work/source.gguf" || return
    try "quantize to $1" "$trueup" quantize --type "$1" "$work/source.gguf" "$work/$1.gguf"
}

# Both cards together; CARDS names their kind, which is a rehearsal's.
cards() {
    local kind="${CARDS:-cuda}" count=2 dtype list
    if [ "$kind" = cuda ]; then
        count="$(nvidia-smi --list-gpus 2>/dev/null | wc -l)" || count=0
    fi
    if [ "$count" -lt 2 ]; then
        say "not run: there are no two cards here"
        printf '{"not_run": "there are no two cards here"}' >"$folder/cards.json"
        return
    fi
    for dtype in f16 q8_0 q4_0; do
        model "$dtype" || continue
        for list in "$kind:0,$kind:1" "$kind:0+1"; do
            over_cards "$list" "$dtype" NCCL_DEBUG=WARN
        done
        # Where one card does not reach the other's memory by itself.
        over_cards "$kind:0+1" "$dtype" NCCL_P2P_DISABLE=1
    done
    joined "$work"/cards-*.json >"$folder/cards.json"
}

# over_cards DEVICES TYPE VARIABLE=VALUE: one entry of the cards' list, with what the program says of them.
over_cards() {
    local code=0 said
    try "verify $2 on $1, $3" env "$3" "$trueup" verify "$work/$2.gguf" --ref ref --dev "$1" --steps 4 || code=$?
    said="$(grep -m 1 -E 'gathered by|from card to card' "$work/output" || true)"
    printf '{"devices": %s, "type": %s, "with": %s, "exit": %s, "said": %s}' "$(quoted "$1")" "$(quoted "$2")" "$(quoted "$3")" "$code" "$(quoted "$said")" \
        >"$work/cards-${1//[^a-z0-9+]/-}-$2-$3.json"
}

# sanitized TOOL NAME COMMAND...: one entry of the sanitizers' list; where the tool says nothing of errors, it did not
# run.
sanitized() {
    local tool="$1" name="$2" code=0 said
    shift 2
    try "compute-sanitizer $tool, $name" compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 "$@" || code=$?
    said="$(grep -E '========= (ERROR|RACECHECK) SUMMARY' "$work/output" | tail -n 1 || true)"
    if [ -z "$said" ] && [ "$code" != 0 ]; then
        wrong=$((wrong - 1))
        said="not run, the machine does not let it: $last"
        say "$said"
    fi
    printf '{"tool": %s, "of": %s, "exit": %s, "said": %s}' "$(quoted "$tool")" "$(quoted "$name")" "$code" "$(quoted "${said:-$last}")" >"$work/sanitizers-$tool-$name.json"
}

sanitizers() {
    local tool dtype
    if ! command -v compute-sanitizer >/dev/null; then
        say "not run: compute-sanitizer is not here"
        printf '{"not_run": "compute-sanitizer is not here"}' >"$folder/sanitizers.json"
        return
    fi
    for tool in memcheck racecheck; do
        sanitized "$tool" operators "$trueup" ops test --dev "$device" --seed 1 --sample 1/40
        for dtype in f16 q4_0; do
            model "$dtype" || continue
            sanitized "$tool" "$dtype" "$trueup" run "$work/$dtype.gguf" --ids "1 5 9 2" -n 6 --temp 0 --device "$device"
        done
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

kernels() {
    local dtype measured=""
    if ! command -v ncu >/dev/null; then
        say "not run: ncu is not installed"
        printf '{"not_run": "ncu is not installed"}' >"$folder/kernels.json"
        return
    fi
    # Prompts of up to 8 tokens use the kernels of decoding.
    for dtype in $bench_types; do
        try "kernels of $bench_model $dtype" ncu --clock-control none --csv --page raw \
            --metrics gpu__time_duration.sum,dram__bytes_read.sum,launch__grid_size,launch__block_size \
            "$trueup" bench "synth:$bench_model:$dtype" --dev "$device" --prompt 4 --generate 4 --repetitions 1 -q || {
            # Virtual machines often do not permit profiling; any other failure counts.
            grep -q ERR_NVGPUCTRPERM "$work/output" || continue
            wrong=$((wrong - 1))
            say "not run, the machine does not permit profiling"
            continue
        }
        grep '^"' "$work/output" >"$folder/kernels-$dtype.csv"
        measured="$measured $dtype"
    done
    printf '{"measured": %s}' "$(quoted "${measured# }")" >"$folder/kernels.json"
}

run_stages
