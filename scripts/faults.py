#!/usr/bin/env python3
"""Inject every fault of `trueup verify --inject-fault list`, verify correct models many times, and write docs/faults.md.

    python scripts/faults.py PATH/TO/trueup [--clean 200] [--seed 1] [--page docs/faults.md]

Each fault is injected into the first fixture and weight type to which it applies. It is found if verify exits with 1 and
names the node. For comparison, the page shows what two common gates say about the result of that node: NMSE at most 5e-4,
and cosine similarity at least 0.99; NaN counts as found. The clean runs draw fixture, type, prompts, steps, KV type,
threads and instruction set from the seed; each must exit with 0. Requires only Python.

Exit code: 0 if all faults are found and there is no false alarm, 1 otherwise.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
MODELS = ("models/llama2", "models/llama3", "models/llama3-tied", "models/llama-linear", "models/llama-yarn",
          "models/mistral", "models/mixtral", "models/qwen2", "models/qwen3", "stories-1M")
TYPES = ("q8_0", "q4_0", "f32", "q4_1", "q5_0", "f16", "bf16", "q5_1")
NMSE_MAX, COSINE_MIN = 5e-4, 0.99
# Longer than the sliding window of the fixture that has one.
PROMPTS = ("--ids", " ".join(str(3 + 7 * place % 200) for place in range(40)), "--ids", "5 9 17 60 33")


def call(trueup, *arguments):
    return subprocess.run([trueup, *arguments], capture_output=True, text=True)


def model(trueup, folder, name, dtype):
    """The fixture in this type, converted once."""
    path = os.path.join(folder, f"{os.path.basename(name)}-{dtype}.gguf")
    if not os.path.exists(path):
        done = call(trueup, "convert", os.path.join(FIXTURES, name), path, "--type", dtype, "-q")
        assert done.returncode == 0, done.stderr
    return path


def kv_types(name):
    """KV cache types that a fixture supports: q8_0 needs heads of whole blocks."""
    with open(os.path.join(FIXTURES, name, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return ("f16", "f32", "q8_0") if head % 32 == 0 else ("f16", "f32")


def reported(done):
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        return None


def plant(trueup, folder, name):
    """(node, model, type, found, verdict, NMSE, cosine) of one fault."""
    for fixture in ("stories-1M", "models/qwen2", "models/mistral", "models/llama2", "models/mixtral", "models/gemma2",
                    "models/gemma3", "models/mamba2"):
        for dtype in TYPES:
            path = model(trueup, folder, fixture, dtype)
            done = call(trueup, "verify", path, "--inject-fault", name, *PROMPTS, "--steps", "3", "--json", "-", "-q")
            report = reported(done)
            if report is None:
                continue
            node = report["planted"]["node"]
            found = done.returncode == 1 and (report["first_bad"] or {}).get("node") == node
            phases = next((n["phases"] for n in report["nodes"] if n["node"] == node), [])
            # Of the failing phases, the one with the largest NMSE.
            failing = [phase for phase in phases if not passes(phase["verdict"])] or phases
            worst = max(failing, key=lambda phase: phase["nmse"] if phase["nmse"] is not None else float("inf"))
            broken = worst["nan"] + worst["infinite"] + worst["unwritten"] > 0
            nmse, cosine = (None, None) if broken else (worst["nmse"], worst["cosine"])
            return node, fixture, dtype, found, worst["verdict"], nmse, cosine, report
    return None


def pieces(report, node):
    """Whether the parts of a fused node pass alone: a fault inside the fused kernel leaves them correct."""
    wrong = [p["node"] for n in report["nodes"] if n["node"] == node for p in n["pieces"] if not passes(p["verdict"])]
    is_fused = any(n["fused"] for n in report["nodes"] if n["node"] == node)
    return "" if not is_fused else f", already at `{wrong[0]}`" if wrong else ", its parts pass"


def passes(verdict):
    return verdict in ("exact", "rounding", "declared_loss")


def number(value):
    return "NaN" if value is None else f"{value:.1e}"


def plants(trueup, folder):
    listed = json.loads(call(trueup, "verify", "--inject-fault", "list", "--json", "-").stdout)
    rows, faults, seen = [], [], [0, 0]
    for entry in listed:
        result = plant(trueup, folder, entry["name"])
        if result is None:
            faults.append(f"{entry['name']}: applies to no fixture")
            continue
        node, fixture, dtype, found, verdict, nmse, cosine, report = result
        by_nmse = nmse is None or not nmse <= NMSE_MAX
        by_cosine = cosine is None or not cosine >= COSINE_MIN
        seen[0] += by_nmse
        seen[1] += by_cosine
        said = ("found" if found else "MISSED") + pieces(report, node)
        if not found:
            faults.append(f"{entry['name']} at {node} of {fixture} in {dtype}: {report['sentence']}")
        rows.append(f"| `{entry['name']}` | {entry['what']} | `{node}` | {dtype} | {said}: {verdict.replace('_', ' ')} | "
                    f"{number(nmse)} {'detected' if by_nmse else 'not detected'} | "
                    f"{'NaN' if cosine is None else f'{cosine:.6f}'} {'detected' if by_cosine else 'not detected'} |")
        print(rows[-1], flush=True)
    return rows, faults, seen


def clean(trueup, folder, runs, seed):
    """False alarms in verifications of the correct device."""
    draw = random.Random(seed)
    alarms, nodes = [], 0
    for run in range(runs):
        name, dtype = draw.choice(MODELS), draw.choice(TYPES)
        path = model(trueup, folder, name, dtype)
        arguments = ["verify", path, "--steps", str(draw.randrange(0, 6)), "-t", str(draw.choice((1, 2, 3)))]
        for _ in range(draw.randrange(1, 5)):
            length = draw.choice((1, 2, 3, 7, 16, 31, 32, 33, 60))
            low = draw.choice((3, 3, 3, 50))
            ids = [draw.randrange(low, 250 if low == 3 else low + 1) for _ in range(length)]
            arguments += ["--ids", " ".join(map(str, ids))]
        arguments += ["--kv", draw.choice(kv_types(name))] + draw.choice(([], [], ["--isa", "scalar"]))
        arguments += draw.choice(([], [], ["--fusion", "off"]))
        done = call(trueup, *arguments, "--json", "-", "-q")
        report = reported(done)
        nodes += report["coverage"]["checked"] if report else 0
        if done.returncode != 0:
            alarms.append(f"run {run}: {' '.join(arguments)}: {report['sentence'] if report else done.stderr}")
            print(alarms[-1], flush=True)
    return alarms, nodes


PAGE = """# Fault injection

`trueup verify MODEL --inject-fault NAME` injects a fault into the device on purpose. Use it to check that your gate
fails when it must: the exit code is 1, and the report names the faulty node.

```sh run exit=1
trueup verify model-q8_0.gguf --inject-fault rope-position
```

`--inject-fault list` prints all faults, `--inject-fault NAME@NODE` selects the node.

## What verify finds

**{found} of {all} faults are found by verify. A gate on NMSE finds {nmse}, a gate on cosine similarity {cosine}.**

- *verify* must exit with 1 and name the node where the fault was injected.
- The last two columns show whether two common gates detect the fault in the result of that node alone: normalized mean
  square error of at most 5e-4, and cosine similarity of at least 0.99. Both detect NaN, infinity and values that were
  never written.
- *its parts pass*: the nodes of a fused operator are correct when they are computed one by one, so the fused kernel
  is at fault.
- *already at NODE*: NODE, one of the nodes that were fused, is faulty even when it is computed alone, so the fault is
  not specific to the fused kernel.
- A softmax that does not subtract its maximum is not in this list: its result only differs if it overflows. The
  operator suite tests it.

| fault | what is wrong | node | weights | verify | NMSE | cosine |
|---|---|---|---|---|---|---|
{rows}

## False alarms

{runs} verifications of the correct device, drawn with seed {seed}: all fixture models in eight weight types; one to
four prompts of 1 to 60 tokens, some with repeated tokens; 0 to 5 decoded tokens; KV cache in f16, f32 and, if heads
are multiples of 32, q8_0; one to three threads; fastest and scalar kernels; with and without fusion. {nodes} verdicts
on nodes. **False alarms: {alarms}.**

## Reproduce

```sh
python scripts/faults.py PATH/TO/trueup --clean 200 --seed 1 --page docs/faults.md
```

This table was made on the device `cpu`.
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trueup")
    parser.add_argument("--clean", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows, faults, seen = plants(options.trueup, folder)
        alarms, nodes = clean(options.trueup, folder, options.clean, options.seed)
    print(f"{len(rows)} faults, missed: {len(faults)}; NMSE detects {seen[0]}, cosine {seen[1]}; "
          f"{options.clean} clean runs, false alarms: {len(alarms)}")
    print("\n".join(faults))
    if options.page:
        missed = sum("MISSED" in row for row in rows)
        with open(options.page, "w", encoding="utf-8") as page:
            page.write(PAGE.format(found=len(rows) - missed, all=len(rows), nmse=seen[0], cosine=seen[1], rows="\n".join(rows),
                                   runs=options.clean, seed=options.seed, nodes=nodes, alarms=len(alarms)))
    sys.exit(1 if faults or alarms else 0)


if __name__ == "__main__":
    main()
