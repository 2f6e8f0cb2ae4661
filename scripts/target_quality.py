#!/usr/bin/env python3
"""Compare `trueup quantize --target` with a fixed type at the same file size.

    python scripts/target_quality.py TRUEUP MODEL-f16.gguf --corpus CHOOSE.txt --held-out TEST.txt [--type q4_k_m]

Quantizes the model as the fixed type, then again with `--target` and the size of that file. Both results are compared
with the source on a text that was not used to choose the types. With --imatrix, both use an importance matrix of the
text in --corpus. Prints a Markdown row for each file. Exits with 1 if the --target file is larger, or if its KL
divergence is not lower by at least twice the combined standard error.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(str(word) for word in command)}\n{done.stderr.strip()}")
    return done.stdout


def divergence(arguments, file):
    """The mean KL divergence of a file from the source, its standard error, and the share of equal top tokens."""
    report = json.loads(run(arguments.trueup, "compare", file, "--against", arguments.model, "--corpus",
                            arguments.held_out, "--chunks", arguments.held_out_chunks, "--json", "-q"))
    against = report["result"]["figures"]["against"]
    mean = against["kl"]["mean"]
    return mean["value"], mean["error"], against["same_top"]["value"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trueup", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--held-out", type=pathlib.Path, required=True)
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--held-out-chunks", type=int, default=8)
    parser.add_argument("--type", default="q4_k_m")
    parser.add_argument("--imatrix", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        importance = []
        if arguments.imatrix:
            importance = ["--imatrix", work / "imatrix.gguf"]
            run(arguments.trueup, "imatrix", arguments.model, "--corpus", arguments.corpus, "--chunks", "32", "-o",
                importance[1], "-q")
        fixed, target = work / "fixed.gguf", work / "target.gguf"
        run(arguments.trueup, "quantize", "--type", arguments.type, *importance, arguments.model, fixed, "-q")
        size = fixed.stat().st_size
        run(arguments.trueup, "quantize", "--target", size, "--corpus", arguments.corpus, "--chunks", arguments.chunks,
            *importance, arguments.model, target, "-q")
        print("| options | bytes | KL divergence, held-out text | same top token |\n|---|---|---|---|")
        means, errors = [], []
        for options, file in ((f"--type {arguments.type}", fixed), (f"--target {size}", target)):
            mean, error, same = divergence(arguments, file)
            means.append(mean)
            errors.append(error)
            options += " --imatrix" if arguments.imatrix else ""
            print(f"| `{options}` | {file.stat().st_size:,} | {mean:.4f} ± {error:.4f} | {same:.1%} |", flush=True)
        is_larger = target.stat().st_size > size
    is_closer = means[0] - means[1] > 2 * sum(error * error for error in errors) ** 0.5
    return 0 if is_closer and not is_larger else 1


if __name__ == "__main__":
    sys.exit(main())
