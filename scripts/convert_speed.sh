#!/usr/bin/env bash
# How fast convert and quantize are beside other software, in turns, on a checkpoint of 2.5 GB: bf16 to f16, and f16 to
# q4_0 and q8_0, two threads on both sides. The tensors of both sides must be the same. The time of trueup is that of
# the whole process without fsync, which stands beside it: the others leave their files in the page cache. The roof is a
# copy of the same bytes by cat.
#
#   scripts/convert_speed.sh PATH/TO/trueup PYTHON [WORK]     (Python with the packages of scripts/requirements.txt; a C
#                                                             compiler)
set -euo pipefail
trueup="$(realpath "$1")"
python="$2"
here="$(dirname "$(realpath "$0")")"
work="${3:-$(mktemp -d)}"
rounds=5
mkdir -p "$work"
peers=("$python" "$here/convert_speed_peers.py")

# Seconds of a process and, of these, in fsync.
cat >"$work/fsync.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>
static double start, spent;
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}
int fsync(int file) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    double before = now();
    int result = next(file);
    spent += now() - before;
    return result;
}
__attribute__((constructor)) static void begin(void) { start = now(); }
__attribute__((destructor)) static void end(void) { fprintf(stderr, "%.3f %.3f\n", now() - start - spent, spent); }
C
cc -shared -fPIC -O2 -o "$work/fsync.so" "$work/fsync.c" -ldl

[ -e "$work/model/config.json" ] || "$python" "$here/make_large_model.py" "$work/model" >"$work/made"
model="$work/model.gguf"
[ -e "$model" ] || "$trueup" convert "$work/model" "$model" --type f16 -q >/dev/null

ours() { env LD_PRELOAD="$work/fsync.so" "$trueup" "$@" -t 2 -q 2>&1 >/dev/null | tail -n 1; }
cold() { for file in "$work"/model/*.safetensors; do dd of="$file" oflag=nocache conv=notrunc,fdatasync count=0 status=none; done; }
warm() { cat "$@" >/dev/null; }

# Each line: what, seconds of ours, of these in fsync behind it, seconds of the other.
round() {
    local found copy
    warm "$work"/model/*.safetensors
    copy="$("$python" -c 'import subprocess, sys, time; start = time.monotonic()
subprocess.run(["cat", *sys.argv[2:]], stdout=open(sys.argv[1], "wb"), check=True); print(time.monotonic() - start)' "$work/copy" "$work"/model/*.safetensors)"
    rm "$work/copy"
    echo "convert $(ours convert "$work/model" "$work/a.gguf" --type f16) $("${peers[@]}" convert "$work/model" "$work/b.gguf") $copy"
    [ "$1" -gt 1 ] || "${peers[@]}" same "$work/a.gguf" "$work/b.gguf"
    rm "$work/a.gguf" "$work/b.gguf"
    warm "$model"
    for dtype in q4_0 q8_0; do
        found="$(ours quantize --type "$dtype" --pure "$model" "$work/a.gguf")"
        echo "$dtype $found $("${peers[@]}" quantize "$model" "$work/b.gguf" "$dtype") $copy"
        [ "$1" -gt 1 ] || "${peers[@]}" same "$work/a.gguf" "$work/b.gguf"
        rm "$work/a.gguf" "$work/b.gguf"
    done
    cold
    echo "cold $(ours convert "$work/model" "$work/a.gguf" --type f16) 0 $copy"
    rm "$work/a.gguf"
}

for number in $(seq "$rounds"); do round "$number"; done >"$work/times"
"$python" - "$work/times" "$(cat "$work"/model/*.safetensors | wc -c)" "$(stat -L -c %s "$model")" <<'PYTHON'
import statistics, sys
rows = [line.split() for line in open(sys.argv[1])]
sizes = {"convert": int(sys.argv[2]), "cold": int(sys.argv[2])}
names = {"convert": "convert bf16 to f16, warm", "cold": "convert bf16 to f16, cold", "q4_0": "quantize f16 to q4_0", "q8_0": "quantize f16 to q8_0"}
def show(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} - {max(values):.{digits}f})"
print("| what | s without fsync | GB/s of input | fsync, s | the other, s | ratio |\n|---|---|---|---|---|---|")
for what, name in names.items():
    times = [[float(value) for value in row[1:4]] for row in rows if row[0] == what]
    size = sizes.get(what, int(sys.argv[3]))
    ours, syncs, others = zip(*times)
    other, ratio = ("", "") if what == "cold" else (show(others), show([b / a for a, b in zip(ours, others)], 1))
    print(f"| {name} | {show(ours)} | {show([size / 1e9 / a for a in ours], 1)} | {show(syncs)} | {other} | {ratio} |")
copies = [float(row[4]) for row in rows if row[0] == "convert"]
print(f"copy of the checkpoint by cat: {show(copies)} s, {show([sizes['convert'] / 1e9 / copy for copy in copies], 1)} GB/s")
PYTHON
