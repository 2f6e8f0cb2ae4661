#!/usr/bin/env bash
# Compiles kernels/cuda/*.cu to the PTX that the program carries (kernels/cuda/ptx), with NVRTC from its Python package,
# of one version: the same sources give the same bytes on any machine. No card is needed, nor a CUDA toolkit.
#
#   scripts/kernels.sh [--check] [--assemble | --assemble-earliest] [--cubin] [--if-possible] [PYTHON]
#
#   --check       writes nothing, and fails where a file is not what its source gives
#   --assemble    assembles the PTX for five generations of cards with ptxas; fails if a kernel spills registers
#   --assemble-earliest
#                 the same for the earliest generation that each module supports
#   --cubin       makes the machine code for H100 and H200 too, in target/kernels/cubin, which `cargo build --features
#                 cubin` takes into the program
#   --if-possible says that nothing was compiled, instead of failing, where the packages cannot be had
set -euo pipefail
cd "$(dirname "$0")/.."

python=python3
if_possible=no
arguments=()
for argument in "$@"; do
    case "$argument" in
        --check | --assemble | --assemble-earliest | --cubin) arguments+=("$argument") ;;
        --if-possible) if_possible=yes ;;
        *) python="$argument" ;;
    esac
done
work=target/kernels
# 12.4 writes PTX 8.4, which drivers from 550 on read.
packages="nvidia-cuda-nvrtc-cu12==12.4.127 nvidia-cuda-runtime-cu12==12.4.127 nvidia-cuda-nvcc-cu12==12.4.131"

if [ ! -e "$work/$packages" ]; then
    rm -rf "$work"
    mkdir -p "$work"
    # shellcheck disable=SC2086
    if ! "$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --target "$work/packages" $packages; then
        echo "not run: kernels compiled again, which needs Python's pip and the packages $packages"
        [ "$if_possible" = yes ]
        exit
    fi
    touch "$work/$packages"
fi
"$python" scripts/kernels.py "$work/packages" "${arguments[@]}"
