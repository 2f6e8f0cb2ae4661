#!/usr/bin/env bash
# A model of 4.8 GB decodes with 3 GB of memory: on the processor, and over a simulated card and the processor. The
# limit is the operating system's: a control group below the one of this shell where one can be made, else RLIMIT_DATA,
# which counts memory that can be written and no pages of files.
#
#   scripts/memory_check.sh TRUEUP [PYTHON]     PYTHON has numpy and gguf; $TMPDIR needs room for 5 GB; SHAPE names one
#                                               of make_large_gguf.py, LIMIT_MIB the limit
#
# SHAPE=chatglm-6b-slimmed makes ChatGLM-6B's checkpoint of 13.4 GB (make_chatglm6b.py; $TMPDIR needs room for 18 GB)
# and converts it with --prune-vocab, below the limit too.
set -euo pipefail
trueup="$1"
python="${2:-python3}"
limit_mib="${LIMIT_MIB:-3072}"
folder="$(mktemp -d)"
group=""
trap 'rm -rf "$folder"; [ -z "$group" ] || rmdir "$group"' EXIT

# The folder of a new control group with the limit, if one can be made.
make_group() {
    local above limit
    above="/sys/fs/cgroup$(awk -F: '$2 == "" { print $3 }' /proc/self/cgroup)" limit=memory.max
    if [ ! -e "$above/$limit" ]; then
        above="/sys/fs/cgroup/memory$(awk -F: '$2 == "memory" { print $3 }' /proc/self/cgroup)" limit=memory.limit_in_bytes
    fi
    mkdir "$above/trueup-memory-check" 2>/dev/null || return 0
    if { echo $((limit_mib * 1024 * 1024)) >"$above/trueup-memory-check/$limit"; } 2>/dev/null; then
        echo "$above/trueup-memory-check"
    else
        rmdir "$above/trueup-memory-check"
    fi
}

# Runs a command below the limit, its output in $folder/output, and prints the largest sum of anonymous and shared
# memory, in KiB.
peak_kib() {
    (
        if [ -n "$group" ]; then echo "$BASHPID" >"$group/cgroup.procs"; else ulimit -d $((limit_mib * 1024)); fi
        exec "$@"
    ) >"$folder/output" 2>&1 &
    local process=$! peak=0 now
    while kill -0 "$process" 2>/dev/null; do
        now="$(awk '/^RssAnon|^RssShmem/ { sum += $2 } END { print sum + 0 }' "/proc/$process/status" 2>/dev/null || echo 0)"
        if [ "${now:-0}" -gt "$peak" ]; then peak="$now"; fi
        sleep 0.05
    done
    wait "$process" || { cat "$folder/output" >&2; return 1; }
    echo "$peak"
}

check() {
    local what="$1" kib
    shift
    kib="$(peak_kib "$trueup" run "$folder/model.gguf" --ids "1 2 3 4" -n 5 --ignore-eos -c 512 --no-warmup "$@")"
    echo "$what: peak $((kib / 1024)) MiB beside pages of files"
    grep -v '^[0-9 ]*$' "$folder/output" | sed 's/^/  /'
}

group="$(make_group)"
if [ -n "$group" ]; then way="a control group"; else way=RLIMIT_DATA; fi
echo "$limit_mib MiB of memory, by $way"
if [ "${SHAPE:-}" = chatglm-6b-slimmed ]; then
    "$python" "$(dirname "$0")/make_chatglm6b.py" "$folder/checkpoint"
    kib="$(peak_kib "$trueup" convert "$folder/checkpoint" "$folder/model.gguf" --type q4_0 --prune-vocab drop:0-19999)"
    echo "convert --prune-vocab drop:0-19999 --type q4_0: peak $((kib / 1024)) MiB beside pages of files"
    grep -E '^(note|wrote)' "$folder/output" | sed 's/^/  /'
    rm -r "$folder/checkpoint"
else
    "$python" "$(dirname "$0")/make_large_gguf.py" "$folder/model.gguf" --shape "${SHAPE:-llama-8b}"
fi
du -m --apparent-size "$folder/model.gguf" | cut -f1 | sed 's/$/ MiB of model/'
check "cpu"
check "cpu, the file as it is" --no-repack
# The memory of a simulated card is this machine's: the processor is told to leave it.
check "npu-sim:910b and cpu" --device npu-sim:910b,cpu --device-memory 1GiB,1500MiB
