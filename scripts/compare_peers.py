#!/usr/bin/env python3
"""Compare trueup with llama.cpp and candle on the same files, in turns, and write docs/performance.md's table and chart.

    python scripts/compare_peers.py TRUEUP [--work DIR] [--rounds 5] [--threads 1,2] [--types q4_0,q8_0,f16]
                                    [--prompt 512] [--generate 64] [--python PATH] [--candle PATH|build|off]
                                    [--llama-bench NAME=COMMAND] [--wait SECONDS] [--tries 2] [--minutes 10] [--redraw]

The work folder (target/compare_peers) gets, once, a checkpoint of Llama-3.2-1B's shape with random weights, its GGUF files by
`trueup convert`, an environment with llama-cpp-python built for this machine (not with --python, which names the Python of one that
has llama-cpp-python, numpy and matplotlib), and candle's timer built by cargo (--candle PATH names one that is there). About 10 GB
and, once, 15 minutes.

In each round every file and number of threads is measured by one process of each program behind each other, in the reverse order in
the next round. Ratios are those of neighbours in a round; medians and the smallest and largest stand in the table. No thread of anyone
is pinned. --wait lets others finish before each pair, for so long at most; a pair during which others had more than a tenth of the
processors is measured again, --tries times at most, and the quietest counts. No round begins after --minutes. candle, which is slow,
is measured in the first round only, with the most threads. --redraw writes the page again from the last results.

--llama-bench adds a peer, for example a fork of llama.cpp, by its llama-bench program and options for it, such as
`--llama-bench "repacked=ik/build/bin/llama-bench -rtr 1"`. It measures the same prompt and the same number of tokens after it, without
the time to the first token and memory. Repeat the option for several peers.
"""
import argparse
import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
import time

import compare_peers_page as page

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = ["llama-cpp-python==0.3.36", "matplotlib==3.11.2", "numpy==2.4.6"]
CONTEXT, SEQUENCES = 1024, 16


def run(command, **options):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)


def environment(work):
    """The Python of an environment with the packages, made where it is not there."""
    folder = os.path.join(work, "environment")
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(os.path.join(folder, "complete")):
        run([sys.executable, "-m", "venv", folder])
        settings = dict(os.environ, CMAKE_ARGS="-DGGML_NATIVE=on")
        run([python, "-m", "pip", "install", "--no-binary", "llama-cpp-python", *PACKAGES], env=settings)
        open(os.path.join(folder, "complete"), "w", encoding="utf-8").close()
    return python


def candle(work):
    """The binary of candle's timer, built for this processor."""
    settings = dict(os.environ, RUSTFLAGS="-C target-cpu=native", CARGO_TARGET_DIR=os.path.join(work, "candle"))
    manifest = os.path.join(HERE, "candle_peer", "Cargo.toml")
    run(["cargo", "build", "--release", "--locked", "--manifest-path", manifest], env=settings)
    return os.path.join(work, "candle", "release", "candle_peer")


def is_quantized_only(name):
    """Whether `trueup quantize` writes the type and `trueup convert` does not."""
    return "_k" in name or name.startswith(("iq", "mxfp", "nvfp", "tq"))


def models(work, trueup, python, types):
    """Type -> GGUF file."""
    paths = {name: os.path.join(work, f"{name}.gguf") for name in types}
    checkpoint = os.path.join(work, "checkpoint")
    for name, path in paths.items():
        if os.path.exists(path):
            continue
        if not os.path.exists(os.path.join(checkpoint, "config.json")):
            run([python, os.path.join(HERE, "make_large_model.py"), checkpoint, "--shape", "llama-1b"])
        if is_quantized_only(name):
            run([trueup, "quantize", "--type", name, models(work, trueup, python, ["f16"])["f16"], path, "-q"])
        else:
            run([trueup, "convert", checkpoint, path, "--type", name, "-q"])
    return paths


def busy_seconds():
    """Processor time of the whole machine that somebody used, 0 where the system does not say."""
    try:
        with open("/proc/stat", encoding="utf-8") as file:
            user, nice, system, _, _, interrupt, soft, steal = map(int, file.readline().split()[1:9])
    except OSError:
        return 0.0
    return (user + nice + system + interrupt + soft + steal) / os.sysconf("SC_CLK_TCK")


def wait_for_quiet(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = busy_seconds()
        time.sleep(1)
        if busy_seconds() - before < page.QUIET * os.cpu_count():
            return


def measure(command, threads):
    """The JSON that a process prints, and the share of the machine's processors that others had meanwhile."""
    settings = dict(os.environ, RAYON_NUM_THREADS=str(threads))
    busy, start, used = busy_seconds(), time.monotonic(), os.times()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=settings)
    after, elapsed = os.times(), time.monotonic() - start
    own = sum(after[i] - used[i] for i in range(4))
    return json.loads(done.stdout), max(0.0, (busy_seconds() - busy - own) / (elapsed * os.cpu_count()))


def of_bench(found):
    """The report of `trueup bench` in the words of the other timers, and what only it knows."""
    int8, roof = found["roof"]["int8_gop_per_s"], found["roof"]["read_gb_per_s"]
    return {"first": found["first_token_seconds"], "memory": found["peak_memory_bytes"],
            "prompt": found["prompt"]["seconds"]["median"], "decode": found["decode"]["seconds"]["median"],
            "prompt_roof": found["prompt"]["roof_share"], "decode_roof": found["decode"]["roof_share"],
            "int8": found["prompt"]["gop_per_s"] / int8, "read_gb_per_s": roof, "int8_gop_per_s": int8,
            "about": found["description"]}


def of_llama_bench(found):
    """The report of llama-bench, one entry a test, in the words of the other timers."""
    prompt = next(test for test in found if not test["n_gen"])
    decode = next(test for test in found if test["n_gen"] and (test.get("n_depth") or test["n_prompt"]))
    return {"prompt": prompt["n_prompt"] / prompt["avg_ts"], "decode": decode["n_gen"] / decode["avg_ts"],
            "about": f"llama-bench {prompt['build_commit']}, {prompt['cpu_info']}"}


def disturbance(tried):
    return max(found["others"] for found in tried.values())


class Comparison:
    def __init__(self, arguments, python, peers, paths):
        self.arguments, self.python, self.peers, self.paths = arguments, python, peers, paths
        self.rows = []

    def command(self, program, path, threads):
        prompt, generate = str(self.arguments.prompt), str(self.arguments.generate)
        if program == "trueup":
            return [self.arguments.trueup, "bench", path, "--prompt", prompt, "--generate", generate, "-t", str(threads),
                    "-c", str(self.context()), "--repetitions", "1", "--json", "-", "-q"]
        if program == "llama.cpp":
            script = os.path.join(HERE, "compare_peers_llama_cpp.py")
            return [self.python, script, path, prompt, generate, str(threads), str(self.context())]
        if program == "candle":
            return [self.peers["candle"], path, prompt, generate]
        # Tokens after a prompt: llama.cpp combines each depth with the prompt and the tokens; forks have -gp.
        peer = self.peers[program]
        usage = subprocess.run([peer[0], "--help"], capture_output=True, text=True, check=False).stdout
        tests = ["-n", generate, "-d", f"0,{prompt}"] if "--n-depth" in usage else ["-n", "0", "-gp", f"{prompt},{generate}"]
        return [*peer, "-m", path, "-p", prompt, *tests, "-t", str(threads), "-r", "1", "-o", "json"]

    def context(self):
        return max(CONTEXT, self.arguments.prompt + self.arguments.generate)

    def round(self, number):
        programs = ["trueup", "llama.cpp", *self.arguments.llama_bench]
        for kind, path in self.paths.items():
            for threads in self.arguments.threads:
                row = self.quietest(programs[::-1 if number % 2 else 1], path, threads)
                # It takes longer than the others together.
                if "candle" in self.peers and number == 0 and threads == max(self.arguments.threads):
                    row |= self.quietest(["candle"], path, threads)
                self.rows.append(row | {"round": number, "type": kind, "threads": threads, "file_bytes": os.path.getsize(path)})
            self.together(number, kind, path)

    def quietest(self, programs, path, threads):
        """Program -> what it found, of the try in which others used least of the processors."""
        best = None
        for _ in range(self.arguments.tries):
            wait_for_quiet(self.arguments.wait)
            tried = {}
            for program in programs:
                found, others = measure(self.command(program, path, threads), threads)
                if program == "trueup":
                    found = of_bench(found)
                elif program in self.arguments.llama_bench:
                    found = of_llama_bench(found)
                tried[program] = found | {"others": others}
            if best is None or disturbance(tried) < disturbance(best):
                best = tried
            if disturbance(best) <= page.QUIET:
                break
        return best

    def together(self, number, kind, path):
        """Many sequences against one, with all threads."""
        threads = max(self.arguments.threads)
        found, others = measure([self.arguments.trueup, "bench", path, "--prompt", "32", "--generate", "32", "-t", str(threads), "-c",
                                 str(self.context()), "--repetitions", "1", "--parallel", f"1,{SEQUENCES}", "--json", "-", "-q"], threads)
        one, many = found["parallel"]
        self.rows.append({"round": number, "type": kind, "threads": threads, "one": one["tokens_per_s"], "many": many["tokens_per_s"],
                          "ratio": many["tokens_per_s"] / one["tokens_per_s"], "others": others})


def machine():
    """What the processor says of itself, its number, memory and kernel."""
    def field(path, name):
        with open(path, encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith(name))

    try:
        processor, memory = field("/proc/cpuinfo", "model name"), int(field("/proc/meminfo", "MemTotal").split()[0]) >> 20
    except (OSError, StopIteration):
        return f"{platform.processor()}, {os.cpu_count()} processors, {platform.system()} {platform.release()}"
    return f"{processor}, {os.cpu_count()} processors, {memory} GiB, {platform.system()} {platform.release()}"


def numbers(text):
    return [int(part) for part in text.split(",")]


def named(text):
    name, found, command = text.partition("=")
    path, *options = shlex.split(command) or [""]
    if not (found and name and path):
        raise argparse.ArgumentTypeError(f"expected NAME=COMMAND, found {text}")
    return name, [os.path.abspath(path), *options]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trueup")
    parser.add_argument("--work", default=os.path.join(HERE, "..", "target", "compare_peers"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--types", type=lambda text: text.split(","), default=["q4_0", "q8_0", "f16"])
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=64)
    parser.add_argument("--python")
    parser.add_argument("--candle", default="build")
    parser.add_argument("--llama-bench", type=named, action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--wait", type=float, default=0)
    parser.add_argument("--tries", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--redraw", action="store_true")
    arguments = parser.parse_args()
    arguments.llama_bench = dict(arguments.llama_bench)
    arguments.trueup, arguments.work = os.path.abspath(arguments.trueup), os.path.abspath(arguments.work)
    return arguments


def compare(arguments, python):
    peers = dict(arguments.llama_bench)
    if arguments.candle != "off":
        peers["candle"] = candle(arguments.work) if arguments.candle == "build" else os.path.abspath(arguments.candle)
    comparison = Comparison(arguments, python, peers, models(arguments.work, arguments.trueup, python, arguments.types))
    end = time.monotonic() + 60 * arguments.minutes
    for number in range(arguments.rounds):
        if number and time.monotonic() > end:
            break
        comparison.round(number)
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    version = subprocess.run([arguments.trueup, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    arguments.rounds = 1 + max(row["round"] for row in comparison.rows)
    shown = {name: getattr(arguments, name) for name in ("rounds", "threads", "types", "prompt", "generate")}
    return {"date": datetime.date.today().isoformat(), "machine": machine(), "version": version, "context": comparison.context(),
            "peers": ["llama.cpp", *arguments.llama_bench, "candle"], "sequences": SEQUENCES, "arguments": shown, "rows": comparison.rows}


def main():
    arguments = parse()
    os.makedirs(arguments.work, exist_ok=True)
    python = arguments.python or environment(arguments.work)
    results = os.path.join(arguments.work, "results.json")
    if not arguments.redraw:
        found = compare(arguments, python)
        with open(results, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    with open(results, encoding="utf-8") as file:
        text = page.tables(json.load(file))
    page.insert(text)
    run([python, os.path.join(HERE, "compare_peers_chart.py"), results])
    print(text)


if __name__ == "__main__":
    main()
