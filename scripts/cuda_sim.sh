#!/usr/bin/env bash
# Builds the simulator: a library that replaces the NVIDIA driver and runs the kernels of kernels/cuda on the CPU. Needs
# a C++20 compiler ($CXX, g++ or clang++). Only changed files are compiled, two at a time.
#
#   scripts/cuda_sim.sh [--sanitize] FOLDER
#       FOLDER/libtrueup_cuda_sim.so, with libtrueup_cublaslt_sim.so and libtrueup_nccl_sim.so, which replace cuBLASLt
#       and NCCL
#   scripts/cuda_sim.sh [--sanitize] --check
#       tests the simulator: kernels with injected faults, each of which must be found, and everything else it does
#   scripts/cuda_sim.sh --run PROGRAM [ARGUMENT...]
#       runs a program with a simulator that is built with --sanitize; needs g++
#   scripts/cuda_sim.sh --faulty FOLDER TARGET FILE.cu...
#       TARGET/libtrueup_cuda_sim.so, in which the given files replace the kernels of the same name of FOLDER's
#       simulator; it reports the hashes of the unchanged sources
#
#   --sanitize   uses the address and undefined behaviour sanitizers, which report the line of a kernel; --run loads
#                them into a program that is built without them
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    echo "usage: scripts/cuda_sim.sh [--sanitize] FOLDER | [--sanitize] --check | --run PROGRAM [ARGUMENT...] | --faulty FOLDER TARGET FILE.cu..." >&2
    exit 2
}
sanitize=no
what=build
folder=""
while [ "$#" -gt 0 ]; do
    case "$1" in
        --sanitize) sanitize=yes ;;
        --check) what=check ;;
        --run) what=run && sanitize=yes && folder=target/cuda_sim_sanitize && shift && break ;;
        --faulty) what=faulty && folder="${2:-}" && shift "$(($# < 2 ? $# : 2))" && break ;;
        -*) usage ;;
        *) folder="$1" ;;
    esac
    shift
done
case "$what" in
    build) [ -n "$folder" ] || usage ;;
    run) [ "$#" -ge 1 ] || usage ;;
    faulty) [ "$#" -ge 2 ] || usage ;;
esac
compiler="${CXX:-}"
for candidate in g++ clang++; do
    if [ -z "$compiler" ] && command -v "$candidate" >/dev/null; then compiler="$candidate"; fi
done
if [ -z "$compiler" ]; then
    echo "cuda_sim.sh: the simulator needs a C++20 compiler, and neither g++ nor clang++ is here (apt-get install g++)" >&2
    exit 3
fi

export compiler
export flags="-std=c++20 -O2 -g1 -march=native -ffp-contract=off -fno-math-errno -fno-strict-aliasing -fstack-clash-protection"
flags="$flags -fPIC -fvisibility=hidden -pthread -Wall -Wextra"
link="-pthread"
if [ "$sanitize" = yes ]; then
    # Without optimization: the compiler takes a third of the time, and it removes nothing that the sanitizers look for.
    flags="${flags/-O2/-O0} -fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize=vptr"
    link="$link -fsanitize=address,undefined"
fi
# The first name that users of the driver look for.
link_library="$link -shared -Wl,-soname,libcuda.so"
# What -march=native means here, and which compiler it is.
target="$("$compiler" -march=native -v -E -x c++ /dev/null 2>&1 >/dev/null | sha256sum | cut -c 1-16)"

export kernel_flags="-Wno-unknown-pragmas -Wno-unused-function -DKERNEL_SIM"

# compile SOURCE OBJECT. Each file of kernels is in a namespace of its own: names that two files share are not each
# other's.
compile() {
    local source="$1" object="$2" name
    if [[ "$source" == *.cu ]]; then
        name="$(basename "$source" .cu)"
        printf '#include "ptx.cuh"\nnamespace file_%s {\n#include "%s"\n}\n' "${name//[^a-zA-Z0-9]/_}" "$(realpath "$source")" |
            "$compiler" $flags $kernel_flags -I"$(dirname "$source")" -Ikernels/cuda -MMD -MF "$object.d" -MT "$object" -c -x c++ - -o "$object"
    else
        "$compiler" $flags -Ikernels/cuda -MMD -MF "$object.d" -MT "$object" -c "$source" -o "$object"
    fi
}
export -f compile

# is_old OBJECT FILE...: whether it is not there, or one of the files, or of those that it was made of, is newer or
# gone.
is_old() {
    local object="$1" file
    [ -e "$object" ] && [ -e "$object.d" ] || return 0
    while read -r file; do
        [ -e "$file" ] && [ ! "$file" -nt "$object" ] || return 0
    done < <(sed -e 's/^[^:]*: *//' -e 's/\\$//' "$object.d" | tr -s ' ' '\n' | sed '/^$/d')
    return 1
}

# build FOLDER RESULT LINK SOURCE...
build() {
    local folder="$1" library="$2" link="$3" source object objects=() old=()
    # Objects of another folder's sources are none of these, whatever their times.
    local made_by="$PWD $compiler $target $flags $kernel_flags"
    shift 3
    mkdir -p "$folder/objects"
    if [ "$(cat "$folder/objects/made_by" 2>/dev/null)" != "$made_by" ]; then
        rm -f "$folder"/objects/*.o "$folder"/objects/*.o.d
        echo "$made_by" >"$folder/objects/made_by"
    fi
    for source in "$@"; do
        if [[ "$source" == *.so || "$source" == *.so.* ]]; then objects+=("$source" "-Wl,-rpath,$(dirname "$source")") && continue; fi
        object="$folder/objects/$(basename "$source").o"
        objects+=("$object")
        if is_old "$object"; then old+=("$source" "$object"); fi
    done
    if [ "${#old[@]}" -gt 0 ]; then
        printf '%s\0' "${old[@]}" | xargs -0 -n 2 -P 2 bash -c 'compile "$@" || exit 255' compile
    fi
    local linked="$compiler $link ${objects[*]}" newer=no
    [ -e "$library" ] && [ "$(cat "$folder/objects/linked" 2>/dev/null)" = "$linked" ] || newer=yes
    for object in "${objects[@]}"; do
        if [ "$object" -nt "$library" ]; then newer=yes; fi
    done
    if [ "$newer" = yes ]; then
        # A new file takes the old one's place: a process that has opened it keeps what it has.
        # shellcheck disable=SC2086
        "$compiler" $link "${objects[@]}" -o "$library.new"
        mv "$library.new" "$library"
        echo "$linked" >"$folder/objects/linked"
    fi
}

# build_nccl FOLDER RESULT DRIVER: what stands in for NCCL; the driver's library is found by the name that it has in
# itself.
build_nccl() { build "$1/nccl" "$2" "$link -shared -Wl,-soname,libnccl.so.2" kernels/cuda/sim/nccl/nccl.cpp "$3"; }

shopt -s nullglob
if [ "$what" = check ]; then
    folder="${folder:-target/cuda_sim_check$([ "$sanitize" = no ] || echo _sanitize)}"
    mkdir -p "$folder"
    library="$(realpath "$folder")/libcuda.so"
    build "$folder" "$library" "$link_library" kernels/cuda/sim/*.cpp kernels/cuda/sim/faults/*.cu
    gathers="$(dirname "$library")/libnccl.so.2"
    build_nccl "$folder" "$gathers" "$library"
    build "$folder/check" "$folder/check/check" "$link" kernels/cuda/sim/faults/*.cpp "$library" "$gathers"
    export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1
    for seed in 1 2 3 4 5 6; do "$folder/check/check" "$seed"; done
    if [ "$sanitize" = yes ]; then
        for kernel in twice_one_too_many twice_one_before twice_of_nothing four_not_aligned divides_by_zero; do
            line="$("$folder/check/check" 1 "$kernel" 2>&1 | grep -m 1 -o 'memory\.cu:[0-9]*' || true)"
            [ -n "$line" ] || { echo "cuda_sim.sh: the sanitizers do not find $kernel" >&2; exit 1; }
            echo "$kernel: found at $line"
        done
    fi
    exit
fi
# digests FILE...: their hashes, as bytes that printf writes.
digests() { sha256sum "$@" | cut -c 1-64 | tr -d '\n' | sed 's/../\\x&/g'; }

# What the kernels are made of, a line for each file: its name and the hash that scripts/kernels.py gives it. The
# program, which carries the same hashes in its PTX, asks for them.
made_of() {
    local headers source
    headers="$(digests kernels/cuda/*.cuh)"
    for source in kernels/cuda/*.cu; do
        # shellcheck disable=SC2059
        echo "$(basename "$source" .cu) $(printf "$(digests scripts/kernels.py "$source")$headers" | sha256sum | cut -c 1-64)"
    done
}
export LC_ALL=C
mkdir -p "$folder/objects"
# Several callers may ask for the same folder at a time: one builds, the others wait.
exec {lock}>"$folder/objects/lock"
flock "$lock"
made_of="$folder/objects/made_of.cpp"
{
    echo 'extern "C" __attribute__((visibility("default"))) const char* trueup_sim_made_of() {'
    echo '    return'
    made_of | sed 's/.*/        "&\\n"/'
    echo '        ;'
    echo '}'
} >"$made_of.new"
if cmp -s "$made_of.new" "$made_of"; then rm "$made_of.new"; else mv "$made_of.new" "$made_of"; fi
build "$folder" "$folder/libtrueup_cuda_sim.so" "$link_library" kernels/cuda/*.cu kernels/cuda/sim/*.cpp "$made_of"
# Stands in for cuBLASLt; what it calls of the simulator is found by the name that the simulator has in itself.
build "$folder/blas" "$folder/libtrueup_cublaslt_sim.so" "$link -shared -Wl,-soname,libcublasLt.so" kernels/cuda/sim/blas/blas.cpp \
    "$folder/libtrueup_cuda_sim.so"
build_nccl "$folder" "$folder/libtrueup_nccl_sim.so" "$folder/libtrueup_cuda_sim.so"
exec {lock}>&-

if [ "$what" = faulty ]; then
    target="$1"
    shift
    mkdir -p "$target"
    objects=" $(echo "$folder"/objects/*.o) "
    # Compiled without optimization: a faulty kernel runs on few cases, and the compiler takes longer than they do.
    flags="${flags/-O2/-O0}"
    for source in "$@"; do
        object="$target/$(basename "$source").o"
        compile "$source" "$object"
        objects="${objects/" $folder/objects/$(basename "$source").o "/" $object "}"
    done
    # shellcheck disable=SC2086
    "$compiler" $link_library $objects -o "$target/libtrueup_cuda_sim.so"
    cp "$folder"/libtrueup_{cublaslt,nccl}_sim.so "$target"
    folder="$target"
fi
if [ "$what" = run ]; then
    program="$folder/$(basename "$1")"
    cp -f "$1" "$program"
    shift
    preload=""
    for library in libasan.so libubsan.so; do
        path="$("$compiler" -print-file-name="$library")"
        [ "$path" != "$library" ] || { echo "cuda_sim.sh: $compiler has no $library to be loaded into a program" >&2; exit 3; }
        preload="$preload${preload:+:}$path"
    done
    LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 exec "$program" "$@"
fi
echo "$folder/libtrueup_cuda_sim.so"
