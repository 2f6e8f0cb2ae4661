#!/usr/bin/env python3
"""Plant every fault that `trueup verify --inject-fault list` shows, run right models many times, and write both as docs/faults.md.

    python scripts/faults.py PATH/TO/trueup [--clean 200] [--seed 1] [--page docs/faults.md]

Each fault is planted in the first fixture and type that can have it. It is found if verify exits with 1 and its sentence names the
node. Beside it stands what two usual gates say about the result of that node alone: NMSE below 5e-4 and cosine above
0.99 (they see the same numbers; NaN counts as seen). The clean runs draw fixture, type, prompts, steps, KV type, threads and
instruction set from the seed, q8_0 among the KV types of models whose heads are whole blocks; each must exit with 0. Needs nothing but Python.
Exit: 0 all found and no alarm; 1 otherwise.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
MODELS = ("models/llama2", "models/llama3", "models/llama3-tied", "models/llama-linear", "models/llama-yarn", "models/mistral",
          "models/qwen2", "models/qwen3", "stories-1M")
TYPES = ("q8_0", "q4_0", "f32", "q4_1", "q5_0", "f16", "bf16", "q5_1")
NMSE_MAX, COSINE_MIN = 5e-4, 0.99
# Long enough for the window of the fixture that has one.
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
    """What the KV cache of a fixture can hold: blocks of q8_0 where no block would lie in two heads."""
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
    for fixture in ("stories-1M", "models/qwen2", "models/mistral", "models/llama2"):
        for dtype in TYPES:
            path = model(trueup, folder, fixture, dtype)
            done = call(trueup, "verify", path, "--inject-fault", name, *PROMPTS, "--steps", "3", "--json", "-", "-q")
            report = reported(done)
            if report is None:
                continue
            node = report["planted"]["node"]
            found = done.returncode == 1 and (report["first_bad"] or {}).get("node") == node
            phases = next((n["phases"] for n in report["nodes"] if n["node"] == node), [])
            # The phase that fails; of several the one in which the usual gates have most to see.
            failing = [phase for phase in phases if not passes(phase["verdict"])] or phases
            worst = max(failing, key=lambda phase: phase["nmse"] if phase["nmse"] is not None else float("inf"))
            broken = worst["nan"] + worst["infinite"] + worst["unwritten"] > 0
            nmse, cosine = (None, None) if broken else (worst["nmse"], worst["cosine"])
            return node, fixture, dtype, found, worst["verdict"], nmse, cosine, report
    return None


def pieces(report, node):
    """What the pieces of a fused node are alone, which a fault inside of it leaves right."""
    wrong = [p["node"] for n in report["nodes"] if n["node"] == node for p in n["pieces"] if not passes(p["verdict"])]
    is_fused = any(n["fused"] for n in report["nodes"] if n["node"] == node)
    return "" if not is_fused else f", already in `{wrong[0]}`" if wrong else ", its pieces right"


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
            faults.append(f"{entry['name']}: no fixture can have it")
            continue
        node, fixture, dtype, found, verdict, nmse, cosine, report = result
        by_nmse = nmse is None or not nmse <= NMSE_MAX
        by_cosine = cosine is None or not cosine >= COSINE_MIN
        seen[0] += by_nmse
        seen[1] += by_cosine
        said = ("named" if found else "MISSED") + pieces(report, node)
        if not found:
            faults.append(f"{entry['name']} at {node} of {fixture} in {dtype}: {report['sentence']}")
        rows.append(f"| `{entry['name']}` | {entry['what']} | `{node}` | {dtype} | {said}: {verdict.replace('_', ' ')} | "
                    f"{number(nmse)} {'seen' if by_nmse else 'passes'} | "
                    f"{'NaN' if cosine is None else f'{cosine:.6f}'} {'seen' if by_cosine else 'passes'} |")
        print(rows[-1], flush=True)
    return rows, faults, seen


def clean(trueup, folder, runs, seed):
    """Alarms in runs of right programs."""
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


PAGE = """# What verify sees

Made by `python scripts/faults.py` on the device `cpu`; `trueup verify MODEL --inject-fault NAME` shows any line of it.

Each fault is planted at one node of a right device. *verify* must exit with 1 and name this node. The last two columns say
what two usual gates see in the result of that very node: normalised mean square error at most 5e-4, and cosine at least 0.99; a result
that holds NaN, infinity or what was never written is seen by both. A softmax without its maximum is no fault here: where nothing overflows it
has the same value, and where it does the operator suite plants it (`crates/verify/src/suite/mutants.rs`).

**{found} of {all} faults are named by verify; the gate on NMSE sees {nmse}, the gate on cosine {cosine}.**

| fault | what goes wrong | node | weights | verify | NMSE | cosine |
|---|---|---|---|---|---|---|
{rows}

## Alarms on right programs

{runs} runs of the right device, drawn with seed {seed}: all fixture models in eight types of weights, one to four prompts of 1 to 60
tokens, repeated tokens among them, 0 to 5 further tokens, KV cache in f16 and f32, in q8_0 where
heads are multiples of 32, one to three threads, the fastest and scalar kernels, fused and not;
{nodes} verdicts on nodes. **Alarms: {alarms}.**
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
    print(f"{len(rows)} faults, missed: {len(faults)}; NMSE sees {seen[0]}, cosine {seen[1]}; "
          f"{options.clean} clean runs, alarms: {len(alarms)}")
    print("\n".join(faults))
    if options.page:
        missed = sum("MISSED" in row for row in rows)
        with open(options.page, "w", encoding="utf-8") as page:
            page.write(PAGE.format(found=len(rows) - missed, all=len(rows), nmse=seen[0], cosine=seen[1], rows="\n".join(rows),
                                   runs=options.clean, seed=options.seed, nodes=nodes, alarms=len(alarms)))
    sys.exit(1 if faults or alarms else 0)


if __name__ == "__main__":
    main()
