#!/usr/bin/env bash
# Takes a machine with Ascend cards through all that is claimed of the device npu, and writes down what was found. Needs
# the program alone, built and stripped, fixtures/, and CANN with its environment set (set_env.sh): no cargo, no
# compiler, no Python.
#
#   scripts/npu_check.sh TRUEUP FOLDER [STAGE...]        all stages, in this order, unless some are named
#
#   environment   the cards, the driver, the processor
#   operators     the operator suite with three seeds
#   models        verify on every fixture in f16, q8_0 and, where the chip has it, q4_0
#   speed         ops perf on a card, and on the host's processor
#   decode        bench on models of the shapes of Llama-3-8B and Qwen2.5, in f16, q8_0 and q4_0, on 1 to 3 cards, and
#                 of 1 to 100 sequences, beside the published figures
#
# FOLDER/STAGE.json holds what each stage found, FOLDER/result.json all of them, FOLDER/log.txt what was printed: attach
# them to a report. Exit code 1 where something is wrong. A rehearsal: DEVICE=npu-sim:910bx2:0 ONE_OF=100 FIXTURES=1
# BENCH_MODELS=llama-15m BENCH_TYPES=q8_0 BENCH_PROMPTS=4 BENCH_TOKENS=2 BENCH_SEQUENCES=2 CARDS=2 PERF_OP=scale.
set -euo pipefail

# shellcheck source=scripts/card_check.sh
source "$(dirname "$0")/card_check.sh"
all=(environment operators models speed decode)

device="${DEVICE:-npu}"
types="${TYPES:-f16 q8_0 q4_0}"
bench_models="${BENCH_MODELS:-llama-8b qwen2-0.5b qwen2-1.5b qwen2-3b qwen2-7b}"
bench_types="${BENCH_TYPES:-$types}"
bench_prompts="${BENCH_PROMPTS:-512}"
bench_sequences="${BENCH_SEQUENCES:-50 100}"
cards_most="${CARDS:-3}"

# What others have published of such cards: it stands beside the results, and was not measured here.
published='{"llama-8b on a 910B": "at most 100 ms a token alone, at least 300 tokens/s together", "qwen2-0.5b f16": "42 tokens/s alone, 517 with 50 sequences"}'

environment() {
    local card="not asked: npu-smi is not here"
    if command -v npu-smi >/dev/null; then card="$(npu-smi info)"; fi
    environment_with "$card"
}

operators() {
    for seed in 1 2 3; do suite "$seed"; done
    joined "$work"/operators-*.json >"$folder/operators.json"
}

models() {
    models_as "$types" ""
}

# How many cards there are, of so many that were asked for: the next one computes something small, or is not there.
cards_there() {
    local base="${device%:0}" count=1
    while [ "$count" -lt "$1" ] && "$trueup" ops test --dev "$base:$count" --op scale --sample 1/1000 >>"$log" 2>&1; do count=$((count + 1)); done
    printf %s "$count"
}

# Whether the chip multiplies with weights of a type: 4-bit ones are not for all.
takes() {
    [ "$1" != q4_0 ] || "$trueup" bench synth:llama-15m:q4_0 --dev "$device" --prompt 2 --generate 1 >>"$log" 2>&1
}

# The device as a list of the first so many cards.
cards() {
    local list="$device" base="${device%:0}" card
    for ((card = 1; card < $1; card++)); do list="$list,$base:$card"; done
    printf %s "$list"
}

speed() {
    try "ops perf on $device" "$trueup" ops perf --dev "$device" ${PERF_OP:+--op "$PERF_OP"} --json "$work/speed-card.json" || true
    try "ops perf on cpu" "$trueup" ops perf --dev cpu ${PERF_OP:+--op "$PERF_OP"} --json "$work/speed-cpu.json" || true
    joined "$work"/speed-*.json >"$folder/speed.json"
}

decode() {
    local model dtype prompt sequences count there wanted=""
    there="$(cards_there "$cards_most")"
    [ "$there" = "$cards_most" ] || say "not run: more than the $there cards that are here"
    for dtype in $bench_types; do
        if takes "$dtype"; then wanted="$wanted $dtype"; else say "not run: $dtype, which $device does not multiply with"; fi
    done
    for model in $bench_models; do
        for dtype in $wanted; do
            for prompt in $bench_prompts; do
                for ((count = 1; count <= there; count++)); do
                    benched "$model-$dtype-$prompt-$count" "bench $model $dtype, prompt $prompt, cards $count" "synth:$model:$dtype" --dev "$(cards "$count")" \
                        --prompt "$prompt" --generate "$bench_tokens"
                done
            done
            for sequences in $bench_sequences; do
                benched "$model-$dtype-parallel-$sequences" "bench $model $dtype, $sequences sequences" "synth:$model:$dtype" --dev "$device" --prompt 16 \
                    --generate "$bench_tokens" --parallel "$sequences"
            done
        done
    done
    { printf '{"published": %s, "cards": %s, "types": %s, "measured": ' "$published" "$there" "$(quoted "${wanted# }")" && joined "$work"/decode-*.json && printf '}'; } >"$folder/decode.json"
}

run_stages
