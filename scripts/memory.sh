#!/usr/bin/env bash
# Peak memory of convert and quantize on a synthetic model of about 2.5 GB: anonymous memory only, the page cache is not
# counted.
#
#   scripts/memory.sh TRUEUP [PYTHON]
set -euo pipefail
trueup="$1"
python="${2:-python3}"
limit_kib=$((600 * 1024))
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

# Runs a command and prints the largest sum of anonymous and shared memory that the system saw, in KiB.
peak_kib() {
    "$@" >"$folder/output" 2>&1 &
    local process=$! peak=0 now
    while kill -0 "$process" 2>/dev/null; do
        now="$(awk '/^RssAnon|^RssShmem/ { sum += $2 } END { print sum + 0 }' "/proc/$process/status" 2>/dev/null || echo 0)"
        if [ "${now:-0}" -gt "$peak" ]; then peak="$now"; fi
        sleep 0.02
    done
    wait "$process" || { cat "$folder/output" >&2; return 1; }
    echo "$peak"
}

"$python" "$(dirname "$0")/make_large_model.py" "$folder/model"
du -sh "$folder/model" | cut -f1 | sed 's/^/source: /'
failed=0
check() {
    local what="$1" kib
    shift
    kib="$(peak_kib "$@")"
    echo "$what: peak $((kib / 1024)) MiB (at most $((limit_kib / 1024)))"
    if [ "$kib" -gt "$limit_kib" ]; then failed=1; fi
}
check "convert --type f16" "$trueup" convert "$folder/model" "$folder/model.gguf" --type f16
check "convert --type q8_0 -t 64" "$trueup" convert "$folder/model" "$folder/converted.gguf" --type q8_0 -t 64
check "quantize -b 4" "$trueup" quantize "$folder/model.gguf" "$folder/q4_0.gguf" -b 4
check "quantize -b 8" "$trueup" quantize "$folder/model.gguf" "$folder/q8_0.gguf" -b 8
check "quantize -b 4 --layout split" "$trueup" quantize "$folder/model.gguf" "$folder/split.gguf" -b 4 --layout split
exit "$failed"
