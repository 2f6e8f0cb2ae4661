#!/usr/bin/env python3
"""Compare the speed of `trueup quantize` with llama-quantize, end to end and in pairs.

    python scripts/quantize_speed.py TRUEUP LLAMA_QUANTIZE MODEL [--types q4_k_m,..] [--rounds 3] [--threads 2]

TRUEUP is a release build. MODEL is an f16 GGUF file, such as that of
`scripts/make_large_gguf.py FILE --shape llama-1b --type f16 --layers 6`. Both programs read it from the page cache and
write to /dev/shm, so that no disk is measured. In each round both run once, in alternating order. The table has the
median elapsed and CPU seconds of the whole process, and the medians of their ratios in each round. On a busy machine
only the CPU seconds can be compared. The tensors of both outputs must be equal byte by byte; --skip-check omits this,
for builds of llama.cpp whose compiler contracts multiplications.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import time

import gguf
import numpy as np

TYPES = "q4_k_m,q6_k,q3_k_m,q5_k_m,iq4_xs,mxfp4_moe"


def seconds(command):
    """Elapsed and CPU seconds of a process."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, f"{' '.join(command)}: status {status}"
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime


def differing(ours, theirs):
    """Names of tensors that differ."""
    readers = [gguf.GGUFReader(file) for file in (ours, theirs)]
    ours, theirs = ({tensor.name: tensor for tensor in reader.tensors} for reader in readers)
    assert ours.keys() == theirs.keys(), "the files have different tensors"
    return [name for name, tensor in ours.items()
            if tensor.tensor_type != theirs[name].tensor_type or not np.array_equal(tensor.data, theirs[name].data)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trueup")
    parser.add_argument("llama_quantize")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--skip-check", action="store_true")
    arguments = parser.parse_args()
    outputs = [pathlib.Path(f"/dev/shm/quantize-speed-{side}.gguf") for side in ("trueup", "llama.cpp")]
    threads = str(arguments.threads)
    print("| type | trueup, s | llama-quantize, s | ratio | trueup, CPU s | llama-quantize, CPU s | ratio |")
    print("|---|---|---|---|---|---|---|")
    try:
        for kind in arguments.types.split(","):
            commands = [
                [arguments.trueup, "quantize", "--type", kind, "-t", threads, "-q", str(arguments.model), str(outputs[0])],
                [arguments.llama_quantize, str(arguments.model), str(outputs[1]), kind.upper(), threads],
            ]
            times = [[], []]
            for round_number in range(arguments.rounds):
                subprocess.run(["cat", str(arguments.model)], check=True, stdout=subprocess.DEVNULL)
                for side in ((0, 1) if round_number % 2 == 0 else (1, 0)):
                    outputs[side].unlink(missing_ok=True)
                    times[side].append(seconds(commands[side]))
            wrong = [] if arguments.skip_check else differing(*outputs)
            assert not wrong, f"{kind}: {', '.join(wrong)} differ"
            line = f"| {kind} |"
            for clock in (0, 1):
                ours, theirs = ([run[clock] for run in side] for side in times)
                ratio = statistics.median(their / our for our, their in zip(ours, theirs))
                line += f" {statistics.median(ours):.2f} | {statistics.median(theirs):.1f} | {ratio:.1f} |"
            print(line, flush=True)
    finally:
        for output in outputs:
            output.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
