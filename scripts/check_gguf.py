#!/usr/bin/env python3
"""Check the files that `trueup` writes with software that is not ours.

    python scripts/check_gguf.py PATH/TO/trueup [NAME ...] [--work DIR]

Converts every fixture to f32, f16 and bf16 and quantizes it to the 32-value block types. For the architectures that
reference_gguf.py converts, it then
1. loads each file with the `gguf` package: tensor names, shapes and types as reference_gguf.py has them, bytes equal to the
   package's own, keys and tokens equal to those the package writes, offsets aligned;
2. compares `trueup run` (greedy ids, and logits on the device ref) and `trueup tokenize` with the goldens;
3. runs each file in llama-cpp-python: greedy ids equal to the goldens (f32, f16, bf16) or to the NumPy forward of the same
   file (quantized), ids of the hard texts equal but for the named exceptions.
Other architectures get the checks of generic_gguf.py, and step 2 for the f32 file of a decoder; check_llama_cpp_models.py
runs their files in llama-cpp-python. Notes name what is not compared.
Exit: 0 all passed; 1 a difference; 2 usage; 3 llama-cpp-python is absent, so that step 3 was not done.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile
import unicodedata

import gguf
import numpy as np

import generic_gguf
import numpy_forward
import reference_gguf

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
STORED = ("f32", "f16", "bf16")
QUANTIZED = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")
RUN_QUANTIZED = ("q8_0", "q4_0")
NMSE_MAX = 1e-9
# Keys whose value is a matter of choice, or that only one of the two writers has.
FREE_KEYS = ("GGUF.", "general.", "tokenizer.ggml.scores", "tokenizer.ggml.add_space_prefix", "tokenizer.ggml.tokens",
             "tokenizer.ggml.pre", "tokenizer.ggml.add_bos_token", "tokenizer.chat_template")
# Keys that follow from others where heads share the width evenly; if present they must be right.
DERIVED_KEYS = (".vocab_size", ".attention.key_length", ".attention.value_length", ".rope.dimension_count")


class Report:
    """Collects all differences; says what was checked."""

    def __init__(self):
        self.failures, self.passed, self.notes = [], 0, []

    def check(self, condition, message):
        if condition:
            self.passed += 1
        else:
            self.failures.append(message)
            print("DIFFERS " + message, flush=True)
        return condition

    def note(self, message):
        self.notes += [] if message in self.notes else [message]


# Fixtures of architectures that no other program knows: docs/chatglm.md, docs/moss.md.
OURS_ALONE = ("chatglm1", "moss")


def folder_of(name):
    """The folder of a fixture."""
    folders = [os.path.join(FIXTURES, kind, name) for kind in ("", "models", "encoders", "encoder-decoders")]
    return next(folder for folder in folders if os.path.isdir(folder))


def all_names():
    """The names of all fixtures."""
    names = [name for kind in ("models", "encoders", "encoder-decoders") for name in os.listdir(os.path.join(FIXTURES, kind))]
    return sorted(names) + ["stories-1M"]


class Trueup:
    """The program under test."""

    def __init__(self, path):
        self.path = os.path.abspath(path)

    def call(self, *arguments):
        done = subprocess.run([self.path, *arguments], capture_output=True, text=True, encoding="utf-8", check=False)
        if done.returncode != 0:
            raise RuntimeError(f"trueup {' '.join(arguments)}: exit {done.returncode}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def generate(self, model, ids, count):
        text = self.call("run", model, "--ids", " ".join(map(str, ids)), "-n", str(count), "--temp", "0", "--json")
        return json.loads(text)["prompts"][0]["generated_ids"]

    def logits(self, model, ids, scratch):
        from safetensors.numpy import load_file
        path = os.path.join(scratch, "logits.safetensors")
        self.call("run", model, "--ids", " ".join(map(str, ids)), "-n", "0", "--device", "ref", "--logits", path, "--json")
        return load_file(path)["p0_logits"]

    def tokenize(self, model, text, special, scratch):
        path = os.path.join(scratch, "text.txt")
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        source = ["-f", path] if text else ["-p", ""]
        return json.loads(self.call("tokenize", model, *source, *([] if special else ["--no-special"]), "--json"))["ids"]


class Fixture:
    def __init__(self, name):
        self.name = name
        self.folder = folder_of(name)
        self.source = reference_gguf.Source(self.folder)
        self.tensors = reference_gguf.gguf_tensors(self.source)
        with open(os.path.join(self.folder, "golden.json"), encoding="utf-8") as file:
            self.golden = json.load(file)
        self.added = [t["content"] for t in self.token_entries()]

    def token_entries(self):
        return reference_gguf.added_tokens(self.source).values()

    def not_run(self):
        """Why llama.cpp cannot run the model, or None."""
        if self.source.arch == "baichuan":
            return "llama.cpp ends the process if the number of layers is neither 32 nor 40"
        return "llama.cpp expects heads of hidden_size / heads elements" if self.name == "glm4" else None

    def nmse_max(self, kind):
        """Rows of a head that are divided by their lengths fit no grid; all other weights are exact in each type."""
        return {"f16": 1e-7, "bf16": 1e-5}.get(kind, NMSE_MAX) if "z_loss_weight" in self.source.config else NMSE_MAX

    def not_in_llama_cpp(self, text):
        """Why llama.cpp cannot give the ids of this text, or None."""
        if any(t["content"] in text for t in self.token_entries() if t["lstrip"] or t["rstrip"]):
            return "GGUF has no field for added tokens that take the white space around them"
        if self.source.arch.startswith("qwen") and unicodedata.normalize("NFC", text) != text:
            return "llama.cpp does not normalize to NFC"
        if self.name == "mistral" and (text.startswith((" ", "\u2581")) or any(t in text for t in self.added)):
            return "llama.cpp puts a space before every stretch of text, Metaspace only before the first, where none stands"
        return None


# ---------------------------------------------------------------- 1: the gguf package

def expected_tensors(fixture, kind):
    """name -> (type, bytes) under the default recipe."""
    result = {}
    for name, values in fixture.tensors.items():
        to = reference_gguf.type_of(name, values, kind)
        result[name] = to, gguf.quants.quantize(values, to).tobytes(), values.shape
    return result


def check_tensors(report, label, readers, expected, exact=None):
    """Names, types, shapes and bytes. Other bytes are allowed if they stand for the values of `exact` without loss."""
    found = {t.name: t for reader in readers for t in reader.tensors}
    report.check(set(found) == set(expected), f"{label}: tensors {sorted(set(found) ^ set(expected))} are on one side only")
    for name in sorted(set(found) & set(expected)):
        tensor, (to, data, shape) = found[name], expected[name]
        report.check(tensor.tensor_type == to, f"{label}: {name} is {tensor.tensor_type.name}, expected {to.name}")
        report.check(tuple(int(n) for n in reversed(tensor.shape)) == shape, f"{label}: {name} has shape {tensor.shape}, expected {shape}")
        if name == "rope_freqs.weight":
            close = np.allclose(tensor.data, np.frombuffer(data, np.float32), rtol=1e-6, atol=0)
            report.check(close, f"{label}: {name} holds {tensor.data}")
        elif tensor.tensor_type == to:
            if exact is not None and np.array_equal(gguf.quants.dequantize(tensor.data, to).reshape(shape), exact[name]):
                report.check(True, "")
                continue
            differing = sum(a != b for a, b in zip(tensor.data.tobytes(), data)) if tensor.data.tobytes() != data else 0
            report.check(differing == 0, f"{label}: {name}: {differing} of {len(data)} bytes differ from the gguf package")
    for reader in readers:
        offsets = [int(t.data_offset) for t in reader.tensors]
        report.check(all(o % reader.alignment == 0 for o in offsets) and offsets == sorted(offsets),
                     f"{label}: tensor data is not aligned or not in the order of the table")


def check_keys(report, label, reader, reference, even_heads):
    """Every key of the package's file, but for the free ones, with the same value."""
    for name, field in reference.fields.items():
        if name.startswith(FREE_KEYS):
            continue
        if name not in reader.fields and even_heads and name.endswith(DERIVED_KEYS):
            continue
        if not report.check(name in reader.fields, f"{label}: key {name} is missing"):
            continue
        found, expected = reader.fields[name].contents(), field.contents()
        same = np.allclose(found, expected, rtol=1e-6) if isinstance(expected, float) else found == expected
        report.check(same, f"{label}: {name} is {str(found)[:80]}, expected {str(expected)[:80]}")
    tokens = [t for t in reader.fields["tokenizer.ggml.tokens"].contents()]
    expected = reference.fields["tokenizer.ggml.tokens"].contents()
    known = [i for i, t in enumerate(expected) if not t.startswith("[PAD")]
    differing = [(i, tokens[i], expected[i]) for i in known if i < len(tokens) and tokens[i] != expected[i]]
    report.check(len(tokens) == len(expected) and not differing, f"{label}: tokens differ: {len(tokens)} of {len(expected)}, {differing[:4]}")


# ---------------------------------------------------------------- 2: trueup against the goldens

def check_trueup(report, trueup, fixture, label, path, scratch, most):
    from safetensors.numpy import load_file
    expected = load_file(os.path.join(fixture.folder, "golden.safetensors"))
    for i, prompt in enumerate(fixture.golden["prompts"]):
        ids = trueup.generate(path, prompt["ids"], 16)
        report.check(ids == prompt["greedy_ids"][:16], f"{label}: prompt {i}: trueup gives {ids}, expected {prompt['greedy_ids'][:16]}")
        error = numpy_forward.nmse(trueup.logits(path, prompt["ids"], scratch), expected[f"logits_{i}"])
        report.check(error < most, f"{label}: prompt {i}: NMSE of ref is {error:.3g}, allowed {most}")


def check_trueup_texts(report, trueup, fixture, label, path, scratch):
    for row in fixture.golden.get("texts", []):
        for key, special in (("ids", True), ("ids_no_special", False)):
            ids = trueup.tokenize(path, row["text"], special, scratch)
            report.check(ids == row[key], f"{label}: trueup tokenizes {row['text']!r} to {ids}, expected {row[key]} ({key})")


def check_trueup_quantized(report, trueup, fixture, label, path, scratch):
    model = numpy_forward.Model(path)
    for i, prompt in enumerate(fixture.golden["prompts"]):
        error = numpy_forward.nmse(trueup.logits(path, prompt["ids"], scratch), numpy_forward.forward(model, prompt["ids"]))
        report.check(error < NMSE_MAX, f"{label}: prompt {i}: NMSE of ref to the NumPy forward is {error:.3g}, allowed {NMSE_MAX}")


# ---------------------------------------------------------------- 3: llama.cpp

def open_llama(path):
    """Computed by its common kernels: those for AMX read beyond rows of 64 and end the process, seen in 0.3.36."""
    import llama_cpp
    defaults = llama_cpp.llama_model_default_params

    def without_extra():
        params = defaults()
        params.use_extra_bufts = False
        return params
    llama_cpp.llama_cpp.llama_model_default_params = without_extra
    try:
        return open_common(llama_cpp.Llama, path)
    finally:
        llama_cpp.llama_cpp.llama_model_default_params = defaults


def open_common(Llama, path):
    return Llama(path, n_ctx=256, n_batch=256, n_threads=1, verbose=False, logits_all=True)


def llama_scores(llama, ids):
    """Logits after `ids`."""
    llama.reset()
    llama.eval(ids)
    return np.array(llama.scores[llama.n_tokens - 1], np.float64)


def check_llama_greedy(report, llama, fixture, label, model, exact):
    """16 greedy ids. In quantized files llama.cpp rounds activations too: a choice closer than four times the error may differ."""
    ignore_window = fixture.source.config.get("sliding_window") is not None
    for i, prompt in enumerate(fixture.golden["prompts"]):
        expected = prompt["greedy_ids"][:16]
        if not exact or ignore_window:
            expected, _ = numpy_forward.greedy(model, prompt["ids"], 16, ignore_window)
        ids, same = list(prompt["ids"]), 0
        for token in expected:
            scores = llama_scores(llama, ids)
            if int(scores.argmax()) != token:
                break
            same += 1
            ids.append(token)
        if same < 16:
            reference = numpy_forward.forward(model, ids, ignore_window)[-1]
            error, gap = np.sqrt(((scores - reference) ** 2).mean()), reference.max() - np.sort(reference)[-2]
            close = (not exact or ignore_window) and gap < 4 * error
            if close:
                report.notes.append(f"{label}: prompt {i}: llama.cpp leaves the NumPy path at token {same}, where the gap of {gap:.3g} is within rounding ({error:.3g})")
            report.check(close, f"{label}: prompt {i}: llama.cpp takes {int(scores.argmax())} as token {same}, expected {expected[same]} (gap {gap:.3g}, error {error:.3g})")
        else:
            report.check(True, "")
    if ignore_window:
        report.notes.append(f"{label}: llama.cpp ignores the sliding window of this architecture; compared with a NumPy forward without it")


def check_llama_texts(report, llama, fixture, label):
    for row in fixture.golden.get("texts", []):
        reason = fixture.not_in_llama_cpp(row["text"])
        if reason:
            report.note(f"{fixture.name}: {reason}: {row['text'][:40]!r} not compared")
            continue
        for key, add in (("ids", True), ("ids_no_special", False)):
            if add and fixture.source.arch == "chatglm":
                report.note(f"{fixture.name}: GGUF has no key for tokens before every text but bos: only ids without them are compared")
                continue
            ids = llama.tokenize(row["text"].encode("utf-8"), add_bos=add, special=True)
            report.check(ids == row[key], f"{label}: llama.cpp tokenizes {row['text']!r} to {ids}, expected {row[key]} ({key})")


# ---------------------------------------------------------------- one fixture

def check_stored(report, trueup, fixture, work, with_llama):
    reference_path = os.path.join(work, "reference.gguf")
    reference_gguf.write(fixture.folder, reference_path, "f32")
    reference = gguf.GGUFReader(reference_path)
    for kind in STORED:
        label, path = f"{fixture.name} {kind}", os.path.join(work, f"{fixture.name}-{kind}.gguf")
        trueup.call("convert", fixture.folder, path, "--type", kind)
        reader = gguf.GGUFReader(path)
        check_tensors(report, label, [reader], expected_tensors(fixture, kind))
        even_heads = fixture.source.head_size * fixture.source.heads == fixture.source.config["hidden_size"]
        check_keys(report, label, reader, reference, even_heads)
        check_trueup(report, trueup, fixture, label, path, work, fixture.nmse_max(kind))
        if kind == "f32":
            check_trueup_texts(report, trueup, fixture, label, path, work)
        if with_llama:
            llama = open_llama(path)
            check_llama_greedy(report, llama, fixture, label, numpy_forward.Model(path), exact=True)
            if kind == "f32":
                check_llama_texts(report, llama, fixture, label)


def quantize(trueup, fixture, work, kind):
    """The path of the quantized file."""
    source, path = (os.path.join(work, f"{fixture.name}-{name}.gguf") for name in ("f32", kind))
    short = {"q4_0": ["-b", "4"], "q8_0": ["-b", "8"]}.get(kind, ["--type", kind])
    trueup.call("quantize", source, path, *short)
    return path


def check_quantized(report, trueup, fixture, work, with_llama):
    for kind in QUANTIZED:
        label, path = f"{fixture.name} {kind}", quantize(trueup, fixture, work, kind)
        check_tensors(report, label, [gguf.GGUFReader(path)], expected_tensors(fixture, kind))
        if kind in RUN_QUANTIZED:
            check_trueup_quantized(report, trueup, fixture, label, path, work)
            if with_llama:
                check_llama_greedy(report, open_llama(path), fixture, label, numpy_forward.Model(path), exact=False)


def check_split(report, trueup, fixture, work, with_llama):
    """Several files: together they hold what one file holds; llama.cpp takes the first."""
    label, path = f"{fixture.name} split", os.path.join(work, f"{fixture.name}-split.gguf")
    trueup.call("convert", fixture.folder, path, "--type", "f32", "--split-max-size", "150000")
    parts = sorted(glob.glob(os.path.join(work, f"{fixture.name}-split-*-of-*.gguf")))
    if not report.check(len(parts) > 1, f"{label}: {len(parts)} files like {fixture.name}-split-00001-of-0000N.gguf, expected several"):
        return
    check_tensors(report, label, [gguf.GGUFReader(p) for p in parts], expected_tensors(fixture, "f32"))
    if with_llama:
        check_llama_greedy(report, open_llama(parts[0]), fixture, label, numpy_forward.Model(os.path.join(work, f"{fixture.name}-f32.gguf")), exact=True)


def check_generic(report, trueup, name, work):
    """A fixture whose architecture reference_gguf.py does not convert."""
    fixture = generic_gguf.Fixture(name, folder_of(name))
    path = {kind: os.path.join(work, f"{name}-{kind}.gguf") for kind in STORED}
    for kind in STORED:
        trueup.call("convert", fixture.folder, path[kind], "--type", kind)
    reader = gguf.GGUFReader(path["f32"])
    generic_gguf.check_all(report, f"{name} f32", reader, fixture)
    tensors = generic_gguf.read([reader])
    for kind in STORED + QUANTIZED:
        written = path[kind] if kind in path else quantize(trueup, fixture, work, kind)
        expected = generic_gguf.expected_tensors(tensors, kind, generic_gguf.expert_count(reader))
        check_tensors(report, f"{name} {kind}", [gguf.GGUFReader(written)], expected, tensors)
    if fixture.is_decoder:
        check_trueup(report, trueup, fixture, f"{name} f32", path["f32"], work, NMSE_MAX)
        check_trueup_texts(report, trueup, fixture, f"{name} f32", path["f32"], work)


def check_one(report, trueup, name, work, llama):
    """One fixture in all steps. A step that cannot be done is a difference and does not stop the others."""
    def run(step, *arguments):
        try:
            step(report, trueup, *arguments)
        except Exception as error:  # one broken fixture must not hide the others
            report.check(False, f"{name}: {step.__name__}: {type(error).__name__}: {error}")
    if name in OURS_ALONE:
        return report.note(f"{name}: no other program knows the architecture: not checked")
    if not generic_gguf.has_reference(folder_of(name)):
        return run(check_generic, name, work)
    fixture = Fixture(name)
    not_run = fixture.not_run()
    for step in (check_stored, check_quantized, check_split):
        run(step, fixture, work, llama is not None and not_run is None)
    if llama and not_run:
        report.note(f"{name}: {not_run}: not compared")


def llama_version():
    try:
        import llama_cpp
        return llama_cpp.__version__
    except ImportError:
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trueup")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--work", help="keep the written files here")
    arguments = parser.parse_args()
    report, trueup, llama = Report(), Trueup(arguments.trueup), llama_version()
    with tempfile.TemporaryDirectory() as scratch:
        work = arguments.work or scratch
        os.makedirs(work, exist_ok=True)
        for name in arguments.names or all_names():
            before = report.passed, len(report.failures)
            check_one(report, trueup, name, work, llama)
            print(f"{name}: {report.passed - before[0]} passed, {len(report.failures) - before[1]} differ", flush=True)
    for note in report.notes:
        print("note: " + note)
    print(f"{report.passed} checks passed, {len(report.failures)} differ (gguf package, NumPy forward, "
          + (f"llama-cpp-python {llama})" if llama else "not checked: llama-cpp-python absent)"))
    sys.exit(1 if report.failures else 0 if llama else 3)


if __name__ == "__main__":
    main()
