#!/usr/bin/env bash
# What verify costs: on a model of about 1 billion weights in q4_0, 32 tokens: time of a plain run, of verify, peak
# memory beyond the weights, and whether a session is slower for having a hook that nobody uses.
#
#   scripts/verify_cost.sh PATH/TO/trueup [PYTHON] [WORK]     (Python with the packages of scripts/requirements.txt)
set -euo pipefail
trueup="$(realpath "$1")"
python="${2:-python3}"
here="$(dirname "$(realpath "$0")")"
work="${3:-$(mktemp -d)}"
mkdir -p "$work"
model="$work/model-q4_0.gguf"
if [ ! -e "$model" ]; then
    "$python" "$here/make_large_model.py" "$work/checkpoint"
    "$trueup" convert "$work/checkpoint" "$model" --type q4_0 -q
    rm -r "$work/checkpoint"
fi
ids="$(seq -s ' ' 3 34)"

# seconds, seconds of all cores together, peak anonymous memory (MiB) and exit code of a command
measure() {
    "$python" - "$@" <<'PYTHON'
import resource, subprocess, sys, time
start = time.monotonic()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
peak = 0
while process.poll() is None:
    try:
        status = open(f"/proc/{process.pid}/status").read()
        peak = max([peak] + [int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")])
    except OSError:
        pass
    time.sleep(0.02)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"{time.monotonic() - start:.2f} {used.ru_utime + used.ru_stime:.2f} {peak // 1024} {process.returncode}")
PYTHON
}

nproc="$(nproc)"
echo "machine: $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2-), $nproc cores; model: $(stat -c %s "$model") bytes"
for round in 1 2 3; do
    read -r run_s run_cpu run_mib _ <<<"$(measure "$trueup" run "$model" --ids "$ids" -n 8 --ignore-eos -q)"
    read -r verify_s verify_cpu verify_mib code <<<"$(measure "$trueup" verify "$model" --ids "$ids" --steps 8 -q)"
    echo "round $round: run $run_s s ($run_cpu s of all cores), $run_mib MiB; verify $verify_s s ($verify_cpu s), $verify_mib MiB (exit $code)"
done
