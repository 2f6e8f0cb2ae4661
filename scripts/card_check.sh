# What the checks of cards have in common: sourced by gpu_check.sh and npu_check.sh, which say what their stages are.
# Takes the arguments TRUEUP FOLDER [STAGE...], and these from the environment, as a rehearsal on another device and of
# other sizes: DEVICE, ONE_OF=N (run one in N cases of the operator suite), FIXTURES (how many), JOBS (how many
# fixtures at a time), MODEL_TYPES, BENCH_MODEL, BENCH_TYPES, BENCH_PROMPTS, BENCH_TOKENS. shellcheck shell=bash

if [ $# -lt 2 ]; then
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d' >&2
    exit 2
fi
trueup="$(realpath "$1")"
mkdir -p "$2"
folder="$(realpath "$2")"
shift 2
cd "$(dirname "$0")/.."
stages=("$@")
one_of="${ONE_OF:-1}"
fixtures_most="${FIXTURES:-1000}"
jobs_most="${JOBS:-$((($(nproc) + 1) / 2))}"
bench_tokens="${BENCH_TOKENS:-128}"
log="$folder/log.txt"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
wrong=0

say() { echo "$*" | tee -a "$log"; }

# A text as JSON has it.
quoted() { printf '"%s"' "$(printf %s "$1" | tr '\n\t\r' '   ' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g')"; }

# try WORDS COMMAND...: runs a command into the log, and counts where it fails; its last line is said, and stays in
# $last.
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

# environment_with CARD: what is here.
environment_with() {
    try "devices" "$trueup" devices || true
    grep -E "^${device%%:*}[ :]" "$work/output" | tee -a "$log" || say "the device $device is not in the list"
    local processor
    processor="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors"
    printf '{"date": %s, "device": %s, "card": %s, "processor": %s, "system": %s, "program": %s}' "$(quoted "$(date -u +%FT%TZ)")" "$(quoted "$device")" \
        "$(quoted "$1")" "$(quoted "$processor")" "$(quoted "$(uname -sr)")" "$(quoted "$("$trueup" --version)")" >"$folder/environment.json"
}

# suite SEED FLAG...: one entry of the operators' list.
suite() {
    local seed="$1" code=0
    shift
    try "operator suite, seed $seed $*" "$trueup" ops test --dev "$device" --seed "$seed" --sample "1/$one_of" "$@" || code=$?
    printf '{"seed": %s, "flags": %s, "exit": %s, "said": %s}' "$seed" "$(quoted "$*")" "$code" "$(quoted "$last")" >"$work/operators-$seed-${*//[^a-z]/}.json"
}

# verdict NAME MODEL FLAG...: one entry of the models' list. Encoders generate no tokens.
verdict() {
    local name="$1" model="$2" code=0 steps="--steps 4"
    shift 2
    [ -d "fixtures/encoders/${name%-*}" ] && steps=""
    # shellcheck disable=SC2086 # an option and its value, or nothing
    try "verify $name $*" "$trueup" verify "$model" --ref ref --dev "$device" $steps "$@" || code=$?
    printf '{"model": %s, "flags": %s, "exit": %s}' "$(quoted "$name")" "$(quoted "$*")" "$code" >"$work/models-$name-${*//[^a-z]/}.json"
}

# checkpoint_as FOLDER TYPES FLAGS...: verify of one fixture in these types, once for each set of flags.
checkpoint_as() {
    local checkpoint="$1" types="$2" name dtype flags
    shift 2
    name="$(basename "$checkpoint")"
    try "convert $name" "$trueup" convert "$checkpoint" "$work/$name.gguf" || return
    for dtype in $types; do
        try "quantize $name to $dtype" "$trueup" quantize --type "$dtype" "$work/$name.gguf" "$work/$name-$dtype.gguf" || continue
        for flags in "$@"; do
            # shellcheck disable=SC2086 # flags are words
            verdict "$name-$dtype" "$work/$name-$dtype.gguf" $flags || true
        done
        rm "$work/$name-$dtype.gguf"
    done
}

# models_as TYPES FLAGS...: the same for every fixture, JOBS of them at a time. An empty set of flags is "".
models_as() {
    local types="$1" checkpoint name count=0 all_work="$work" all_log="$log"
    shift
    for checkpoint in fixtures/{models,encoders,encoder-decoders}/*/ fixtures/stories-1M/; do
        [ "$count" -lt "$fixtures_most" ] || break
        count=$((count + 1))
        name="$(basename "$checkpoint")"
        while [ "$(jobs -rp | wc -l)" -ge "$jobs_most" ]; do wait -n || true; done
        (
            work="$all_work/jobs/$name"
            mkdir -p "$work"
            log="$work/log"
            wrong=0
            trap - EXIT
            checkpoint_as "$checkpoint" "$types" "$@"
            echo "$wrong" >"$work/wrong"
        ) &
    done
    wait
    for name in "$all_work"/jobs/*/; do
        cat "$name/log" >>"$all_log"
        wrong=$((wrong + $(cat "$name/wrong" 2>/dev/null || echo 1)))
    done
    joined "$work"/jobs/*/models-*.json >"$folder/models.json"
}

speed() {
    rm -f "$folder/speed.json"
    try "ops perf" "$trueup" ops perf --dev "$device" ${PERF_OP:+--op "$PERF_OP"} --json "$folder/speed.json" || true
}

# benched NAME WORDS COMMAND...: bench into $work/decode-NAME.json, and what it says of speed.
benched() {
    local name="$1" words="$2"
    shift 2
    try "$words" "$trueup" bench "$@" --json "$work/decode-$name.json" || true
    grep -E '^(prompt|decode|roof)' "$work/output" | tee -a "$log" || true
}

# run_stages: those that were asked for, of ${all[@]}, and all results in one file.
run_stages() {
    local stage
    [ "${#stages[@]}" -gt 0 ] || stages=("${all[@]}")
    for stage in "${stages[@]}"; do
        [[ " ${all[*]} " == *" $stage "* ]] || { echo "$(basename "$0"): there is no stage $stage; known are ${all[*]}" >&2; exit 2; }
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
}
