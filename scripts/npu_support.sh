#!/usr/bin/env bash
# Prints the table of docs/ascend-models.md: what falls back to the CPU on each Ascend chip, for every fixture, every
# model of fixtures/published.json and every type, from `plan` on simulated cards. 910b and a3 compute every model
# completely; the table shows the other chips, which must all give the same result. Rows in which they compute all nodes
# are omitted.
#
#   PYTHON=path/to/python scripts/npu_support.sh [--check] TRUEUP     (packages: numpy, safetensors)
#
#   TRUEUP    the program; the simulator must be in the same folder (cargo build --release -p trueup-npu-sim)
#   --check   compares with the page instead of printing; exit code 1 if they differ
#
# A row shows that F of N nodes fall back, and that the graph has S segments. An encoder-decoder model runs on one
# device: if the chip lacks an operator, only `verify` works.
set -euo pipefail

page=docs/ascend-models.md
check=no
if [ "${1:-}" = --check ]; then check=yes && shift; fi
[ $# = 1 ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d' >&2; exit 2; }
trueup="$(realpath "$1")"
cd "$(dirname "$0")/.."
chips=(910b a3 910a 310p 310b)
types=(f32 f16 bf16 q8_0 q4_0 q4_1 mxfp4)
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# cell MODEL CHIP DEVICES: the result of plan for the chip, followed by the other devices: "all", or two cells of the
# table.
cell() {
    local plan nodes elsewhere segments
    if ! plan="$("$trueup" plan "$1" --device "npu-sim:$2$3" --json 2>"$work/log")"; then
        if [ -z "$3" ] && grep -q "cannot compute" "$work/log"; then echo "\`verify\` only |" && return; fi
        cat "$work/log" >&2
        return 1
    fi
    segments="$(grep -oE '"pieces": ?[0-9]+' <<<"$plan" | grep -oE '[0-9]+')"
    nodes="$(grep -oE '"op":' <<<"$plan" | wc -l)"
    elsewhere="$(grep -oE '"device": ?"cpu"' <<<"$plan" | wc -l)"
    if [ "$elsewhere" = 0 ]; then echo "all"; else echo "$elsewhere of $nodes | $segments"; fi
}

table() {
    local checkpoint name type model chip expected value others
    echo "| model | type | nodes on \`cpu\` | segments |"
    echo "|---|---|---|---|"
    "${PYTHON:-python3}" scripts/published_models.py "$work/published"
    for checkpoint in fixtures/models/*/ fixtures/encoders/*/ fixtures/encoder-decoders/*/ "$work"/published/*/; do
        name="$(basename "$checkpoint")"
        others=",cpu"
        case "$checkpoint" in fixtures/encoder-decoders/*) others="" ;; esac
        "$trueup" convert "$checkpoint" "$work/$name.gguf" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
        for type in "${types[@]}"; do
            model="$work/$name-$type.gguf"
            if [ "$type" = f32 ]; then
                "$trueup" convert --type f32 "$checkpoint" "$model" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
            else
                "$trueup" quantize --type "$type" "$work/$name.gguf" "$model" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
            fi
            expected=""
            for chip in "${chips[@]}"; do
                value="$(cell "$model" "$chip" "$others")" || return 1
                case "$chip" in
                    910b | a3) expected="all" ;;
                    910a) expected="$value" ;;
                esac
                if [ "$value" != "$expected" ]; then
                    echo "npu_support.sh: $name, $type, $chip: expected $expected, found $value; add the chip to the table" >&2
                    return 1
                fi
            done
            [ "$value" = all ] || echo "| $name | $type | $value |"
            rm "$model"
        done
        rm "$work/$name.gguf"
    done
}

table >"$work/table"
if [ "$check" = no ]; then
    cat "$work/table"
elif ! diff <(sed -n '/^| model | type |/,$p' "$page" | grep '^|') "$work/table"; then
    echo "npu_support.sh: $page differs from what plan reports (see above); paste the output of scripts/npu_support.sh into it" >&2
    exit 1
fi
