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

if [ $# -lt 2 ]; then
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d' >&2
    exit 2
fi
trueup="$(realpath "$1")"
mkdir -p "$2"
folder="$(realpath "$2")"
shift 2
cd "$(dirname "$0")/.."
all=(environment operators models sanitizers speed decode)
stages=("$@")
[ "${#stages[@]}" -gt 0 ] || stages=("${all[@]}")

device="${DEVICE:-cuda}"
one_of="${ONE_OF:-1}"
bench_model="${BENCH_MODEL:-llama-8b}"
bench_types="${BENCH_TYPES:-q4_0 q8_0 f16}"
bench_prompts="${BENCH_PROMPTS:-512 2048}"
bench_tokens="${BENCH_TOKENS:-128}"
fixtures_most="${FIXTURES:-1000}"
log="$folder/log.txt"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
wrong=0

say() { echo "$*" | tee -a "$log"; }

# A text as JSON has it.
quoted() { printf '"%s"' "$(printf %s "$1" | tr '\n\t\r' '   ' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g')"; }

# try WORDS COMMAND...: runs a command into the log, and counts where it fails; its last line is said, and stays in $last.
try() {
    local what="$1" code=0 started=$SECONDS
    shift
    echo "\$ $*" >>"$log"
    "$@" >"$work/output" 2>&1 || code=$?
    cat "$work/output" >>"$log"
    last="$(grep -v '^note:' "$work/output" | tail -n 1)"
    say "$what: exit $code after $((SECONDS - started)) s: $last"
    [ "$code" = 0 ] || wrong=$((wrong + 1))
    return "$code"
}

# joined FILE...: JSON documents as a list.
joined() {
    local separator="" file
    printf '['
    for file in "$@"; do
        [ -s "$file" ] || continue
        printf %s "$separator"
        cat "$file"
        separator=,
    done
    printf ']'
}

environment() {
    local card="not asked: nvidia-smi is not here"
    if command -v nvidia-smi >/dev/null; then
        card="$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.memory --format=csv,noheader)"
    fi
    try "devices" "$trueup" devices || true
    grep -E "^$device " "$work/output" | tee -a "$log" || say "the device $device is not in the list"
    local processor
    processor="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors"
    printf '{"date": %s, "device": %s, "card": %s, "processor": %s, "system": %s, "program": %s}' "$(quoted "$(date -u +%FT%TZ)")" "$(quoted "$device")" \
        "$(quoted "$card")" "$(quoted "$processor")" "$(quoted "$(uname -sr)")" "$(quoted "$("$trueup" --version)")" >"$folder/environment.json"
}

# suite SEED FLAG...: one entry of the operators' list.
suite() {
    local seed="$1" code=0
    shift
    try "operator suite, seed $seed $*" "$trueup" ops test --dev "$device" --seed "$seed" --one-of "$one_of" "$@" || code=$?
    printf '{"seed": %s, "flags": %s, "exit": %s, "said": %s}' "$seed" "$(quoted "$*")" "$code" "$(quoted "$last")" >"$work/operators-$seed-${*//[^a-z]/}.json"
}

operators() {
    for seed in 1 2 3; do suite "$seed"; done
    suite 1 --repack off
    joined "$work"/operators-*.json >"$folder/operators.json"
}

# verdict NAME MODEL FLAG...: one entry of the models' list.
verdict() {
    local name="$1" model="$2" code=0
    shift 2
    try "verify $name $*" "$trueup" verify "$model" --ref ref --dev "$device" --steps 4 "$@" || code=$?
    printf '{"model": %s, "flags": %s, "exit": %s}' "$(quoted "$name")" "$(quoted "$*")" "$code" >"$work/models-$name-${*//[^a-z]/}.json"
}

models() {
    local count=0 checkpoint name dtype
    for checkpoint in fixtures/models/*/ fixtures/stories-1M/; do
        [ "$count" -lt "$fixtures_most" ] || break
        count=$((count + 1))
        name="$(basename "$checkpoint")"
        try "convert $name" "$trueup" convert "$checkpoint" "$work/$name.gguf" || continue
        for dtype in f16 q8_0 q4_0; do
            try "quantize $name to $dtype" "$trueup" quantize --type "$dtype" "$work/$name.gguf" "$work/$name-$dtype.gguf" || continue
            verdict "$name-$dtype" "$work/$name-$dtype.gguf"
            verdict "$name-$dtype" "$work/$name-$dtype.gguf" --fusion off
            verdict "$name-$dtype" "$work/$name-$dtype.gguf" --repack off
            rm "$work/$name-$dtype.gguf"
        done
    done
    joined "$work"/models-*.json >"$folder/models.json"
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

speed() {
    try "ops perf" "$trueup" ops perf --dev "$device" ${PERF_OP:+--op "$PERF_OP"} --json "$folder/speed.json" || true
}

decode() {
    local dtype prompt
    for dtype in $bench_types; do
        for prompt in $bench_prompts; do
            try "bench $bench_model $dtype, prompt $prompt" "$trueup" bench "synth:$bench_model:$dtype" --dev "$device" --prompt "$prompt" \
                --generate "$bench_tokens" --per-op --json "$work/decode-$dtype-$prompt.json" || true
            grep -E '^(prompt|decode|roof)' "$work/output" | tee -a "$log" || true
        done
    done
    joined "$work"/decode-*.json >"$folder/decode.json"
}

for stage in "${stages[@]}"; do
    [[ " ${all[*]} " == *" $stage "* ]] || { echo "gpu_check.sh: there is no stage $stage; known are ${all[*]}" >&2; exit 2; }
done
for stage in "${stages[@]}"; do
    say "== $stage"
    "$stage"
done
{
    printf '{"wrong": %s' "$wrong"
    for stage in "${all[@]}"; do
        if [ -s "$folder/$stage.json" ]; then printf ', "%s": ' "$stage" && cat "$folder/$stage.json"; fi
    done
    printf '}\n'
} >"$folder/result.json"
say "$wrong commands failed; results: $folder/result.json"
[ "$wrong" = 0 ]
