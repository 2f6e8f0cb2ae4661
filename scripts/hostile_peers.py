"""What Python's gguf and safetensors packages do with the files of the hostile corpus, beside trueup.

    cargo test -p trueup-cli --test hostile -- --write "$PWD/target/hostile"
    python scripts/hostile_peers.py target/hostile/cases.json target/debug/trueup

Only lies about the container of a single file count: those that `trueup inspect` must refuse, and files that must be accepted. Each
file is read in a process of its own with 10 s of processor time, 30 s in all and 16 GiB of address space. "> 1 GB" is the resident memory of a process
that ended by itself. `--list` names each file that was not read as it should. The last line is the largest resident memory of `trueup inspect` and
`trueup tokenize` over all families.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
from importlib.metadata import version

SECONDS = 30
PROCESSOR_SECONDS = 10
ADDRESS_BYTES = 16 << 30
LARGE_BYTES = 10**9


def read_gguf(path):
    import gguf

    for tensor in gguf.GGUFReader(path).tensors:
        tensor.data.shape


def read_safetensors(path):
    from safetensors import safe_open

    with safe_open(os.path.join(path, "model.safetensors"), framework="numpy") as file:
        for key in file.keys():
            file.get_slice(key).get_shape()


def is_for_package(case):
    """Indices and splits are not the packages' business: others read several files as one."""
    return not os.path.lexists(os.path.join(case["model"], "model.safetensors.index.json")) and "split" not in case["name"]


def in_child(read):
    """Runs `read` in a child within limits; how it ended."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            read()
        except BaseException:
            os._exit(2)
        os._exit(0)
    end = time.monotonic() + SECONDS
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.wait4(child, 0)
            return "hangs"
        time.sleep(0.005)
    if os.WIFSIGNALED(status):
        return "hangs" if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) else "crashes"
    if usage.ru_maxrss * 1024 > LARGE_BYTES:
        return "> 1 GB"
    return {0: "accepts", 2: "refuses"}.get(os.WEXITSTATUS(status), "crashes")


def trueup(binary, path):
    """trueup's own exit code decides; a panic is exit code 2 too, and says so."""
    run = subprocess.run([binary, "inspect", "--json", path], capture_output=True, timeout=SECONDS)
    if b"this is a bug" in run.stderr or run.returncode not in (0, 2):
        return "crashes"
    return "accepts" if run.returncode == 0 else "refuses"


def peak(binary, cases):
    """The largest resident memory in MiB, and the case that took it. Called before any package is there: a child starts with its parent's peak."""
    largest = (0.0, "")
    for case in cases:
        for command in (["inspect", "--json", case["model"]], ["tokenize", case["model"], "-p", "Hello world"]):
            null = os.open(os.devnull, os.O_RDWR)
            actions = [(os.POSIX_SPAWN_DUP2, null, descriptor) for descriptor in (0, 1, 2)]
            child = os.posix_spawn(binary, [binary, *command], os.environ, file_actions=actions)
            _, _, usage = os.wait4(child, 0)
            os.close(null)
            largest = max(largest, (usage.ru_maxrss / 1024, f"{case['family']}: {case['name']}"))
    return largest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases")
    parser.add_argument("trueup")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    with open(arguments.cases) as file:
        cases = json.load(file)
    mebibytes, largest = peak(arguments.trueup, cases)
    columns = ["accepts", "refuses", "> 1 GB", "crashes", "hangs"]
    print("| files | read by | " + " | ".join(columns) + " |")
    print("|---|---|" + "---|" * len(columns))
    for family, package, read in [("gguf", "gguf", read_gguf), ("safetensors", "safetensors", read_safetensors)]:
        __import__(package)
        for refused in (True, False):
            chosen = [case for case in cases if case["family"] == family and case["refused"] == refused]
            chosen = [case for case in chosen if is_for_package(case) and (case["container"] or not refused)]
            kind = f"{len(chosen)} {'bad' if refused else 'good'} {family}"
            readers = [
                (f"{package} {version(package)}", lambda path: in_child(lambda: read(path))),
                ("trueup", lambda path: trueup(arguments.trueup, path)),
            ]
            for name, reader in readers:
                ends = [reader(case["model"]) for case in chosen]
                print(f"| {kind} | {name} | " + " | ".join(str(ends.count(column)) for column in columns) + " |")
                wanted = "refuses" if refused else "accepts"
                for case, end in zip(chosen, ends):
                    if arguments.list and end != wanted:
                        print(f"    {case['name']}: {end}")
    print(f"\nMost memory of trueup over {len(cases)} files: {mebibytes:.0f} MiB ({largest})")


if __name__ == "__main__":
    main()
