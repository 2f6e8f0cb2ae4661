#!/usr/bin/env bash
# Which models are computed on Ascend cards, by chip and type: the table of docs/ascend-models.md, of all fixtures, made by `plan` on simulated cards with the processor to fall back on.
#
#   scripts/npu_support.sh TRUEUP        e.g. target/release/trueup; the simulator must lie beside it (cargo build --release -p trueup-npu-sim)
#
# "all" means that every node is on the card; else how many are elsewhere, and into how many pieces the graph is cut.
set -euo pipefail

[ $# = 1 ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d' >&2; exit 2; }
trueup="$(realpath "$1")"
cd "$(dirname "$0")/.."
chips=(910b a3 910a 310p 310b)
types=(f32 f16 bf16 q8_0 q4_0 q4_1)
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# cell MODEL CHIP: what plan says.
cell() {
    local said nodes elsewhere pieces
    said="$("$trueup" plan "$1" --device "npu-sim:$2,cpu" 2>&1)" || { echo "refused"; return; }
    nodes="$(sed -n 's/^npu-sim[^ ]*: \([0-9]*\) nodes.*/\1/p' <<<"$said")"
    elsewhere="$(sed -n 's/^cpu: \([0-9]*\) nodes.*/\1/p' <<<"$said")"
    pieces="$(sed -n 's/.*pieces: \([0-9]*\),.*/\1/p' <<<"$said")"
    if [ "${elsewhere:-0}" = 0 ]; then echo "all"; else echo "${elsewhere} of $((${nodes:-0} + elsewhere)) elsewhere, ${pieces} pieces"; fi
}

echo "| model | type | ${chips[*]/%/ |}" | sed 's/ | $/ |/'
printf '|---|---|'
printf -- '---|%.0s' "${chips[@]}"
echo
for checkpoint in fixtures/models/*/; do
    name="$(basename "$checkpoint")"
    "$trueup" convert "$checkpoint" "$work/$name.gguf" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    for type in "${types[@]}"; do
        model="$work/$name-$type.gguf"
        if [ "$type" = f32 ]; then
            "$trueup" convert --type f32 "$checkpoint" "$model" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
        else
            "$trueup" quantize --type "$type" "$work/$name.gguf" "$model" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
        fi
        printf '| %s | %s |' "$name" "$type"
        for chip in "${chips[@]}"; do printf ' %s |' "$(cell "$model" "$chip")"; done
        echo
        rm "$model"
    done
done
