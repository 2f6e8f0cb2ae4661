#!/usr/bin/env python3
"""Compile kernels/cuda/*.cu to PTX with NVRTC; scripts/kernels.sh brings the packages and calls this.

    python scripts/kernels.py PACKAGES [--check] [--assemble | --assemble-earliest] [--cubin]

Sources are compiled for sm_75, or for the architecture that their first line names. Each file of kernels/cuda/ptx
begins with a hash of its source, all headers, and this file.

    (no option)           compiles the sources whose hash has changed, and removes PTX files without a source
    --check               compiles all sources, and fails if a PTX file differs
    --assemble            assembles each module for all ARCHITECTURES that it supports, and fails if a kernel spills
                          more than SPILLS_MAX bytes of registers. Lines that begin with MARK (kernels/cuda/ptx.cuh) count
                          from ARCHITECTURE_EARLY on, as in the loader
    --assemble-earliest   the same, only for the earliest architecture that each module supports
    --cubin               writes the machine code for ARCHITECTURE_CUBIN next to PACKAGES, each file after the first
                          line of its PTX
"""
import argparse
import concurrent.futures
import ctypes
import glob
import hashlib
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCES = os.path.join(ROOT, "kernels", "cuda")
TARGETS = os.path.join(SOURCES, "ptx")
ARCHITECTURES = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90"]
ARCHITECTURE_BASE = 75
ARCHITECTURE_EARLY = 90
ARCHITECTURE_CUBIN = "sm_90a"
MARK = "//sm_90 "
SPILLS_MAX = 0
OPTIONS = ["--std=c++17", "--fmad=false"]


class Compiler:
    """NVRTC, from its package."""

    def __init__(self, packages):
        folder = os.path.join(packages, "nvidia", "cuda_nvrtc", "lib")
        ctypes.CDLL(glob.glob(os.path.join(folder, "libnvrtc-builtins.so.*"))[0], mode=ctypes.RTLD_GLOBAL)
        self.nvrtc = ctypes.CDLL(glob.glob(os.path.join(folder, "libnvrtc.so.*"))[0])
        includes = os.path.join(packages, "nvidia", "cuda_runtime", "include")
        self.options = [*OPTIONS, f"--include-path={includes}", f"--include-path={SOURCES}"]

    def text(self, program, what):
        """The log or the PTX of a program."""
        size = ctypes.c_size_t()
        getattr(self.nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self.nvrtc, f"nvrtcGet{what}")(program, buffer)
        return buffer.value.decode()

    def compile(self, path):
        program = ctypes.c_void_p()
        with open(path, "rb") as file:
            source = file.read()
        name = os.path.basename(path).encode()
        self.nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, name, 0, None, None)
        architecture = f"--gpu-architecture=compute_{architecture_of(path)}"
        options = [option.encode() for option in [architecture, *self.options]]
        result = self.nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        if result != 0:
            sys.exit(f"{path}: is not compiled:\n{self.text(program, 'ProgramLog')}")
        ptx = self.text(program, "PTX")
        self.nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        # Calls are counted through all programs of a process, in comments.
        return re.sub(r"(// callseq) \d+(, \d+)?", r"\1", ptx)


def digest(path):
    """The hash of the hashes of this file, a source and the headers in the order of their names; tests/tests/integration/kernels.rs has it too."""
    total = hashlib.sha256()
    for part in [os.path.abspath(__file__), path, *sorted(glob.glob(os.path.join(SOURCES, "*.cuh")))]:
        with open(part, "rb") as file:
            total.update(hashlib.sha256(file.read()).digest())
    return total.hexdigest()


def architecture_of(path):
    """The least generation that a source is for: its first line may say `// compute_80`."""
    with open(path, encoding="utf-8") as file:
        found = re.fullmatch(r"// compute_(\d+)\n", file.readline())
    return int(found[1]) if found else ARCHITECTURE_BASE


def read(path):
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read()


def number_of(architecture):
    return int(re.match(r"sm_(\d+)", architecture)[1])


def text_for(path, architecture):
    """A module's text as a card of an architecture gets it; crates/runtime/src/device/cuda/kernels.rs has it too."""
    text = read(path)
    if number_of(architecture) < ARCHITECTURE_EARLY or MARK not in text:
        return text
    return re.sub(r"^\.target sm_\d+", f".target sm_{ARCHITECTURE_EARLY}", text, count=1, flags=re.MULTILINE).replace(MARK, "")


def assemble(packages, path, architecture, output="/dev/null"):
    """What is wrong with the machine code of a module for an architecture, a line each."""
    ptxas = os.path.join(packages, "nvidia", "cuda_nvcc", "bin", "ptxas")
    os.chmod(ptxas, 0o755)
    with tempfile.NamedTemporaryFile("w", suffix=".ptx", encoding="utf-8") as file:
        file.write(text_for(path, architecture))
        file.flush()
        command = [ptxas, "--verbose", f"--gpu-name={architecture}", f"--output-file={output}", file.name]
        result = subprocess.run(command, capture_output=True, text=True)
    name = f"{os.path.basename(path)} for {architecture}"
    if result.returncode != 0:
        return [f"{name}: {result.stderr.strip()}"]
    # "Compiling entry function 'NAME'", and behind it "N bytes stack frame, N bytes spill stores, N bytes spill loads".
    found = re.findall(r"entry function '(\w+)'|(\d+) bytes spill stores, (\d+) bytes spill loads", result.stderr)
    kernel, wrong = "", []
    for entry, stores, loads in found:
        kernel = entry or kernel
        if stores and max(int(stores), int(loads)) > SPILLS_MAX:
            wrong.append(f"{name}: {kernel} spills {stores} bytes of registers and loads {loads}")
    return wrong


def is_for(path, architecture):
    """Whether a module can be assembled for an architecture: its PTX names the least one."""
    return int(re.search(r"^\.target sm_(\d+)", read(path), re.MULTILINE)[1]) <= number_of(architecture)


def assemble_all(packages, count):
    """Assembles each module for the first `count` architectures that it is for."""
    paths = sorted(glob.glob(os.path.join(TARGETS, "*.ptx")))
    jobs = [(path, name) for path in paths for name in [name for name in ARCHITECTURES if is_for(path, name)][:count]]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda job: assemble(packages, *job), jobs)
    wrong = [line for lines in results for line in lines]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(paths)} modules assembled, {len(jobs)} times, for architectures of {', '.join(ARCHITECTURES)}")


def write_cubin(packages):
    folder = os.path.join(os.path.dirname(os.path.abspath(packages)), "cubin")
    os.makedirs(folder, exist_ok=True)
    for path in sorted(glob.glob(os.path.join(TARGETS, "*.ptx"))):
        target = os.path.join(folder, os.path.basename(path)[:-4] + ".cubin")
        wrong = assemble(packages, path, ARCHITECTURE_CUBIN, target)
        if wrong:
            sys.exit("\n".join(wrong))
        with open(target, "rb") as file:
            code = file.read()
        with open(target, "wb") as file:
            file.write(read(path).splitlines(keepends=True)[0].encode() + code)
    print(f"machine code for {ARCHITECTURE_CUBIN} is in {os.path.relpath(folder, ROOT)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("packages")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--assemble", action="store_true")
    parser.add_argument("--assemble-earliest", action="store_true")
    parser.add_argument("--cubin", action="store_true")
    arguments = parser.parse_args()
    os.makedirs(TARGETS, exist_ok=True)
    compiler, stale = None, []
    sources = {os.path.basename(path)[:-3]: path for path in sorted(glob.glob(os.path.join(SOURCES, "*.cu")))}
    for name, path in sources.items():
        target, head = os.path.join(TARGETS, f"{name}.ptx"), f"// {digest(path)}\n"
        found = read(target)
        if found.startswith(head) and not arguments.check:
            continue
        compiler = compiler or Compiler(arguments.packages)
        text = head + compiler.compile(path)
        if text != found and not arguments.check:
            with open(target, "w", encoding="utf-8") as file:
                file.write(text)
        stale += [target] if text != found else []
    orphans = [path for path in glob.glob(os.path.join(TARGETS, "*.ptx")) if os.path.basename(path)[:-4] not in sources]
    if arguments.check and stale + orphans:
        sys.exit(f"not what their sources give: {', '.join(map(os.path.basename, stale + orphans))}; run scripts/kernels.sh")
    if not arguments.check:
        for path in orphans:
            os.remove(path)
    print(f"{len(sources)} modules, {len(stale)} written")
    if arguments.assemble or arguments.assemble_earliest:
        assemble_all(arguments.packages, len(ARCHITECTURES) if arguments.assemble else 1)
    if arguments.cubin:
        write_cubin(arguments.packages)


main()
