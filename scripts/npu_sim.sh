#!/usr/bin/env bash
# Builds the simulator of the C interface of CANN, and links it under the vendor's library names.
#
#   scripts/npu_sim.sh FOLDER     FOLDER/libtrueup_npu_sim.so, and links to it: libascendcl.so, libacl_rt.so,
#                                 libnnopbase.so, libopapi.so
#
# To run a program that is linked against CANN: LD_LIBRARY_PATH=FOLDER PROGRAM. To change the settings, also set
# TRUEUP_NPU_SIM=settings.json: see docs/npu-sim.md. The last line of output is the path of the library.
set -euo pipefail

if [ "$#" -ne 1 ] || [[ "$1" == -* ]]; then
    echo "usage: scripts/npu_sim.sh FOLDER" >&2
    exit 2
fi
mkdir -p "$1"
folder="$(cd "$1" && pwd)"
cd "$(dirname "$0")/.."

cargo build --locked --release -p trueup-npu-sim
built="${CARGO_TARGET_DIR:-target}/release/libtrueup_npu_sim.so"
library="$folder/libtrueup_npu_sim.so"
# A new file takes the old one's place: a process that has opened it keeps what it has.
if [ "$(realpath "$built")" != "$(realpath -m "$library")" ]; then
    cp "$built" "$library.new"
    mv "$library.new" "$library"
fi
for name in libascendcl.so libacl_rt.so libnnopbase.so libopapi.so; do
    ln -sf libtrueup_npu_sim.so "$folder/$name"
done
echo "$library"
