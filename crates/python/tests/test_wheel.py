"""The wheel on the fixtures of the repository, whose goldens were computed by transformers and its tokenizers.

Run with the wheel installed: python -m unittest discover -s crates/python/tests
"""

import _thread
import ast
import hashlib
import importlib.metadata
import inspect
import json
import pathlib
import signal
import tempfile
import threading
import time
import unittest

import numpy

import trueup

ROOT = pathlib.Path(__file__).resolve().parents[3]
STORIES = ROOT / "fixtures" / "stories-1M"
TINY = ROOT / "fixtures" / "models" / "qwen2"
STUB = pathlib.Path(__file__).resolve().parents[1] / "trueup.pyi"


def golden(folder):
    return json.loads((folder / "golden.json").read_text(encoding="utf-8"))


def read_safetensors(path):
    """The f32 and bf16 arrays of a safetensors file, as f32: u64 length, JSON header, bytes."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    arrays = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        array = data[start + begin : start + end]
        if entry["dtype"] == "BF16":
            # The upper half of an f32.
            array = (numpy.frombuffer(array, "<u2").astype("<u4") << 16).tobytes()
        if entry["dtype"] in ("F32", "BF16"):
            arrays[name] = numpy.frombuffer(array, "<f4").reshape(entry["shape"])
    return arrays


class Fixtures(unittest.TestCase):
    """Converted once for all tests."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.stories_file = cls.folder / "stories.gguf"
        cls.tiny_file = cls.folder / "tiny.gguf"
        cls.converted = trueup.convert(STORIES, cls.stories_file, check=True)
        trueup.convert(str(TINY), str(cls.tiny_file), "f32")
        cls.stories = trueup.Model(cls.stories_file)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()


class Texts(Fixtures):
    def test_greedy_text_is_that_of_transformers(self):
        for case in golden(STORIES)["prompts"]:
            self.assertEqual(self.stories.tokenize(case["prompt"]), case["ids"])
            said = self.stories.generate(case["prompt"], max_tokens=200)
            self.assertEqual((case["prompt"] + said).strip(), case["text"].strip())

    def test_tokens_of_hard_texts_are_those_of_the_tokenizers_library(self):
        model = trueup.Model(self.tiny_file)
        cases = golden(TINY)["texts"]
        self.assertGreater(len(cases), 10)
        for case in cases:
            with self.subTest(text=case["text"]):
                self.assertEqual(model.tokenize(case["text"]), case["ids"])
                self.assertEqual(model.tokenize(case["text"], special=False), case["ids_no_special"])
                self.assertEqual(model.detokenize(case["ids"]), case["decoded"])
                self.assertEqual(model.detokenize(numpy.array(case["ids"], int), True), case["decoded_skip_special"])

    def test_pieces_are_the_text(self):
        pieces = []
        text = self.stories.generate("Once upon a time", 40, on_text=pieces.append)
        self.assertGreater(len(pieces), 10)
        self.assertNotIn("", pieces)
        self.assertEqual("".join(pieces), text)

    def test_the_seed_decides_and_threads_do_not(self):
        varied = {"max_tokens": 30, "temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.1}
        texts = {seed: self.stories.generate("Lily", seed=seed, **varied) for seed in range(4)}
        self.assertGreater(len(set(texts.values())), 1)
        one_thread = trueup.Model(self.stories_file, threads=1)
        for seed, text in texts.items():
            self.assertEqual(one_thread.generate("Lily", seed=seed, **varied), text)

    def test_what_on_text_raises_ends_the_text(self):
        pieces = []

        def refuse(piece):
            pieces.append(piece)
            if len(pieces) == 3:
                raise KeyError("enough")

        with self.assertRaises(KeyError):
            self.stories.generate("Once upon a time", on_text=refuse)
        self.assertEqual(len(pieces), 3)

    def test_an_interrupt_ends_the_text(self):
        model = trueup.Model(self.stories_file, device="ref")
        # A process in the background ignores interrupts from its beginning.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        pieces = []
        # A text that does not end by itself before anybody can interrupt it.
        endless = {"context_shift": True, "seed": 4, "temperature": 3.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}

        def interrupt():
            while len(pieces) < 3:
                time.sleep(0)
            _thread.interrupt_main()

        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        # list.append runs no Python code, so that only the library can see the signal before the end.
        with self.assertRaises(KeyboardInterrupt):
            model.generate("Once upon a time", 2000, on_text=pieces.append, **endless)
        interrupter.join()
        self.assertLess(len(pieces), 500)
        self.assertTrue(model.generate("Once upon a time", 1000, **endless).startswith("".join(pieces)))

    def test_a_context_that_shifts_changes_no_text_that_fits(self):
        plain = self.stories.generate("Once upon a time", 60)
        self.assertEqual(self.stories.generate("Once upon a time", 60, context_shift=True, keep=None), plain)
        self.assertEqual(self.stories.generate("Once upon a time", 60, keep=5), plain)
        varied = {"temperature": 3.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 1}
        context = self.stories.metadata["llama.context_length"]
        ids = [len(self.stories.generate("Lily", 600, context_shift=shifts, **varied)) for shifts in (False, True)]
        self.assertGreater(ids[1], ids[0], f"no text after {context} tokens")
        prompt = "Lily"
        while len(self.stories.tokenize(prompt)) < context - 1:
            prompt += " Lily"
        with self.assertRaisesRegex(trueup.TrueupError, "no space in a context"):
            self.stories.generate(prompt, context_shift=True, keep=context)


class Numbers(Fixtures):
    def test_embeddings_are_those_of_transformers(self):
        folder, file = ROOT / "fixtures" / "encoders" / "bert", self.folder / "bert.gguf"
        trueup.convert(folder, file)
        model, arrays = trueup.Model(file), read_safetensors(folder / "golden.safetensors")
        for number, case in enumerate(golden(folder)["prompts"]):
            expected = arrays[f"pooled_{number}"].astype(numpy.float64)
            found = model.embed(case["ids"])
            self.assertEqual(found.dtype, numpy.dtype("float32"))
            nmse = numpy.sum((found - expected) ** 2) / numpy.sum(expected**2)
            self.assertLess(nmse, 1e-7)
        with self.assertRaisesRegex(trueup.TrueupError, "found an encoder"):
            model.logits([2, 5, 3])
        with self.assertRaisesRegex(trueup.TrueupError, "expected an encoder"):
            trueup.Model(self.tiny_file).embed([2, 5, 3])

    def test_logits_are_those_of_transformers(self):
        model = trueup.Model(self.tiny_file, device="ref")
        arrays = read_safetensors(TINY / "golden.safetensors")
        for number, case in enumerate(golden(TINY)["prompts"]):
            expected = arrays[f"logits_{number}"].astype(numpy.float64)
            logits = model.logits(case["ids"])
            self.assertEqual((logits.dtype, logits.shape), (numpy.dtype("float32"), expected.shape))
            nmse = numpy.sum((logits - expected) ** 2) / numpy.sum(expected**2)
            self.assertLess(nmse, 1e-9)

    def test_the_context_is_as_asked_for(self):
        for context, error in [(16, "16"), (0, "expected a context of 1 to"), (10**6, "expected a context of 1 to")]:
            model = trueup.Model(self.stories_file, context=context)
            with self.assertRaisesRegex(trueup.TrueupError, error):
                model.logits(range(17))
        roomy = trueup.Model(self.stories_file, context=17)
        self.assertEqual(roomy.logits(range(17)).shape[0], 17)

    def test_metadata_is_a_dictionary(self):
        metadata = self.stories.metadata
        config = json.loads((STORIES / "config.json").read_text(encoding="utf-8"))
        self.assertEqual(metadata["general.architecture"], "llama")
        self.assertEqual(metadata["llama.block_count"], config["num_hidden_layers"])
        epsilon = float(numpy.float32(config["rms_norm_eps"]))
        self.assertEqual(metadata["llama.attention.layer_norm_rms_epsilon"], epsilon)
        tokens = metadata["tokenizer.ggml.tokens"]
        self.assertEqual((type(tokens), len(tokens)), (list, config["vocab_size"]))

    def test_other_threads_go_on(self):
        ticks = []
        done = threading.Event()

        def tick():
            while not done.is_set():
                ticks.append(time.monotonic())
                time.sleep(0.001)

        ticker = threading.Thread(target=tick)
        ticker.start()
        try:
            start = time.monotonic()
            trueup.verify(self.stories_file, steps=1)
            end = time.monotonic()
        finally:
            done.set()
            ticker.join()
        self.assertGreater(len([tick for tick in ticks if start < tick < end]), 5)


class Services(Fixtures):
    PROMPTS = ["Once upon a time", "Lily", "The dog", "", "A boy saw a cat and"]

    def test_requests_give_what_they_give_alone(self):
        varied = {"max_tokens": 30, "temperature": 1.2}
        with trueup.Service(self.stories, sequences=3) as service:
            asked = {}
            for seed in range(10):
                prompt, pieces = self.PROMPTS[seed % 5], []
                number = service.submit(prompt, seed=seed, on_text=pieces.append, **varied)
                asked[number] = (prompt, seed, pieces)
            self.assertEqual(list(asked), list(range(10)))
            for number, (prompt, seed, pieces) in reversed(asked.items()):
                text = service.fetch(number)
                self.assertEqual(text, self.stories.generate(prompt, seed=seed, **varied))
                self.assertEqual("".join(pieces), text)

    def test_threads_share_a_service(self):
        service, texts = trueup.Service(self.stories, sequences=2), {}

        def ask(prompt):
            texts[prompt] = service.fetch(service.submit(prompt, 20))

        threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in self.PROMPTS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(texts, {prompt: self.stories.generate(prompt, 20) for prompt in self.PROMPTS})

    def test_what_is_not_wanted_is_gone(self):
        service = trueup.Service(trueup.Model(self.stories_file, device="ref"), sequences=1, requests=2)
        endless = service.submit("Lily", context_shift=True, temperature=9.0, top_k=0, top_p=1.0, min_p=0.0)
        waiting = service.submit("Lily", 3)
        with self.assertRaisesRegex(trueup.TrueupError, "2 requests already waiting, running or not fetched"):
            service.submit("Lily", 3)
        self.assertIsNone(service.fetch(waiting, timeout=0.01))
        self.assertTrue(service.cancel(endless))
        self.assertFalse(service.cancel(endless))
        self.assertEqual(service.fetch(waiting), self.stories.generate("Lily", 3))
        for number, part in [(endless, "fetched or cancelled"), (waiting, "fetched or cancelled"), (9, "never submitted")]:
            with self.assertRaisesRegex(trueup.TrueupError, part):
                service.fetch(number)
        service.submit("Lily")
        service.close()
        with self.assertRaisesRegex(trueup.TrueupError, "the service is closed"):
            service.fetch(2)

    def test_close_ends_what_another_thread_waits_for(self):
        service, errors = trueup.Service(trueup.Model(self.stories_file, device="ref"), sequences=2), []
        endless = {"context_shift": True, "temperature": 9.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
        # A callback needs the interpreter, so a thread that waits for the service must not hold it.
        numbers = [service.submit("Lily", on_text=heard, **endless) for heard in (None, len)]

        def wait(number):
            try:
                service.fetch(number)
            except trueup.TrueupError as error:
                errors.append(str(error))

        threads = [threading.Thread(target=wait, args=(number,), daemon=True) for number in numbers]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        service.close()
        for thread in threads:
            thread.join(60)
        self.assertEqual([part for part in errors if "service" in part and "closed" in part], errors)
        self.assertEqual(len(errors), 2)

    def test_what_on_text_raises_is_raised_by_fetch(self):
        def refuse(_piece):
            raise KeyError("enough")

        with trueup.Service(self.stories) as service:
            refused, other = service.submit("Lily", 30, on_text=refuse), service.submit("Lily", 30)
            with self.assertRaises(KeyError):
                service.fetch(refused)
            self.assertEqual(service.fetch(other), self.stories.generate("Lily", 30))


class Files(Fixtures):
    def test_a_conversion_is_checked(self):
        self.assertTrue(self.converted["equal"])
        self.assertEqual({check["agreement"]["result"] for check in self.converted["checks"]}, {"exact"})
        self.assertEqual(self.converted["report"]["architecture"], "llama")
        unchecked = trueup.convert(STORIES, self.folder / "unchecked.gguf", type="f16")
        self.assertEqual((unchecked["checks"], unchecked["equal"]), (None, None))

    def test_a_split_file_is_the_same_model(self):
        blocks, split, joined = (self.folder / f"{name}.gguf" for name in ("blocks", "split", "joined"))
        report = trueup.quantize(self.stories_file, blocks, "q4_0", pure=True)
        self.assertIn("q4_0", {tensor["type"] for tensor in report["tensors"]})
        self.assertTrue(all(tensor["cosine"] > 0.98 for tensor in report["tensors"]))
        trueup.quantize(self.stories_file, split, "q4_0", layout="split", pure=True)
        trueup.quantize(split, joined, None)
        self.assertNotEqual(blocks.read_bytes(), split.read_bytes())
        ids = self.stories.tokenize("Once upon a time")
        expected = trueup.Model(blocks).logits(ids)
        for file in (split, joined):
            numpy.testing.assert_array_equal(trueup.Model(file).logits(ids), expected)

    def test_tensors_get_the_types_of_rules_and_mixtures(self):
        target, direct = self.folder / "mixed.gguf", self.folder / "direct.gguf"
        types = {"rules": ["ffn_down=q5_0", "ffn=q5_1"], "token_embedding_type": "q8_0", "pure": True}
        trueup.quantize(self.stories_file, target, "q4_0", **types)
        tensors = trueup.read_gguf(target).tensors
        found = {name: tensors[f"blk.0.{name}.weight"].dtype for name in ("ffn_down", "ffn_up", "attn_q")}
        self.assertEqual(found, {"ffn_down": "q5_0", "ffn_up": "q5_1", "attn_q": "q4_0"})
        self.assertEqual(tensors["token_embd.weight"].dtype, "q8_0")
        trueup.convert(STORIES, direct, "q4_0", **types)
        for name, tensor in trueup.read_gguf(direct).tensors.items():
            self.assertEqual(tensor.dtype, tensors[name].dtype)
            numpy.testing.assert_array_equal(tensor.data, tensors[name].data)

    def test_a_matrix_in_q4_k_has_the_values_of_its_blocks(self):
        """Super-blocks of 256: two f16 scales, eight pairs of 6-bit codes, 4 bits per weight (ggml's layout)."""
        source, target = self.folder / "wide.gguf", self.folder / "wide-q4_k.gguf"
        trueup.convert(ROOT / "fixtures" / "models" / "refact", source)
        report = trueup.quantize(source, target, "q4_k", pure=True)
        name = "blk.0.ffn_down.weight"
        tensor = trueup.read_gguf(target).tensors[name]
        self.assertEqual((tensor.dtype, tensor.shape[-1] % 256), ("q4_k", 0))
        blocks = tensor.data.reshape(-1, 144)
        scales = blocks[:, :4].copy().view("<f2").astype("<f4")
        packed = blocks[:, 4:16].astype("<i4")
        low, high = packed[:, 0:4], packed[:, 4:8]
        mixed = packed[:, 8:12]
        step = numpy.concatenate([low & 63, mixed & 15 | low >> 6 << 4], axis=1)
        minimum = numpy.concatenate([high & 63, mixed >> 4 | high >> 6 << 4], axis=1)
        pairs = blocks[:, 16:].reshape(-1, 4, 32)
        codes = numpy.stack([pairs & 15, pairs >> 4], axis=2).reshape(-1, 8, 32).astype("<f4")
        values = (scales[:, :1] * step)[:, :, None] * codes - (scales[:, 1:] * minimum)[:, :, None]
        found = tensor.to_float32()
        numpy.testing.assert_array_equal(found, values.astype("<f4").reshape(found.shape))
        line = next(line for line in report["tensors"] if line["name"] == name)
        error = trueup.read_gguf(source).tensors[name].to_float32() - found
        self.assertAlmostEqual(line["rmse"], float(numpy.sqrt((error.astype("<f8") ** 2).mean())), places=9)
        self.assertTrue(numpy.isfinite(trueup.Model(target).logits([5, 6, 7])).all())

    def test_an_importance_matrix_is_collected_and_used(self):
        corpus, matrix = self.folder / "corpus.txt", self.folder / "imatrix.gguf"
        corpus.write_text("Once upon a time there was a little girl. She liked the dog. " * 30, encoding="utf-8")
        report = trueup.imatrix(self.stories_file, corpus, matrix, context=64, chunks=3)
        self.assertEqual((report["chunks"], report["context"]), (3, 64))
        self.assertIn({"name": "blk.0.ffn_up.weight", "matrices": 1, "unseen": []}, report["weights"])
        counts = trueup.read_gguf(matrix).tensors["blk.0.ffn_up.weight.counts"].to_float32()
        self.assertEqual(counts.tolist(), [192.0])
        plain, weighted, direct = (self.folder / f"{name}.gguf" for name in ("plain", "weighted", "converted"))
        trueup.quantize(self.stories_file, plain, "q4_0")
        trueup.quantize(self.stories_file, weighted, "q4_0", imatrix=matrix)
        self.assertEqual(trueup.read_gguf(weighted).metadata["quantize.imatrix.file"], "imatrix.gguf")
        with self.assertRaisesRegex(trueup.TrueupError, "imatrix has no effect with --type f16"):
            trueup.quantize(self.stories_file, direct, "f16", imatrix=matrix)
        trueup.convert(STORIES, direct, "q4_0", imatrix=matrix)
        before, after = (trueup.read_gguf(file).tensors for file in (plain, weighted))
        weight = "blk.0.ffn_up.weight"
        self.assertFalse(numpy.array_equal(before[weight].data, after[weight].data))
        for name, tensor in trueup.read_gguf(direct).tensors.items():
            numpy.testing.assert_array_equal(tensor.data, after[name].data)
        divergence = {}
        for file in (self.stories_file, plain, weighted):
            result = trueup.compare(file, corpus, self.stories_file, context=64, chunks=4, worst=1)
            divergence[file] = result["figures"]["against"]["kl"]["mean"]["value"]
        self.assertLess(abs(divergence[self.stories_file]), 1e-6)
        sums = trueup.read_gguf(matrix).tensors[f"{weight}.in_sum2"].to_float32().reshape(1, -1)
        source = trueup.read_gguf(self.stories_file).tensors[weight].to_float32()
        errors = [(sums * (source - tensors[weight].to_float32()) ** 2).sum() for tensors in (before, after)]
        self.assertGreater(errors[0], errors[1])
        self.assertTrue(0 < divergence[weighted] < 0.1 and 0 < divergence[plain] < 0.1)
        self.assertIsNone(trueup.compare(plain, corpus, context=64)["figures"]["against"])
        with self.assertRaisesRegex(trueup.TrueupError, "expected 4 to"):
            trueup.compare(plain, corpus, context=1)

    def test_a_run_can_be_attested(self):
        target, statement = self.folder / "attested.gguf", self.folder / "attested.json"
        trueup.quantize(self.stories_file, target, "q8_0", attest=statement)
        document = json.loads(statement.read_text(encoding="utf-8"))
        digest = hashlib.sha256(target.read_bytes()).hexdigest()
        self.assertEqual(document["subject"][0]["digest"], {"sha256": digest})
        self.assertEqual(document["_type"], "https://in-toto.io/Statement/v1")
        with self.assertRaisesRegex(trueup.TrueupError, "attested.gguf"):
            trueup.quantize(self.stories_file, target, "q8_0", attest=target)

    def test_a_run_that_could_be_resumed_writes_the_same_file(self):
        again = self.folder / "again.gguf"
        report = trueup.convert(STORIES, again, resume=True)["report"]
        self.assertEqual(report["resumed"]["taken_over"], 0)
        self.assertEqual(again.read_bytes(), self.stories_file.read_bytes())
        self.assertIsNone(self.converted["report"]["resumed"])
        losses = trueup.quantize(self.stories_file, again, "q8_0", resume=True)
        self.assertEqual(losses["resumed"]["tensors"], len(losses["tensors"]))

    def test_a_gguf_file_is_read(self):
        file = trueup.read_gguf(self.tiny_file)
        self.assertEqual(file.metadata, trueup.Model(self.tiny_file).metadata)
        report = trueup.convert(TINY, self.folder / "again-f32.gguf", "f32")["report"]
        self.assertEqual(list(file.tensors), [line["name"] for line in report["tensors"]])
        weights = read_safetensors(TINY / "model.safetensors")
        compared = 0
        for line in report["tensors"]:
            tensor = file.tensors[line["name"]]
            self.assertEqual((tensor.name, tensor.dtype), (line["name"], "f32"))
            numbers = tensor.to_float32()
            self.assertEqual((numbers.dtype, numbers.shape), (numpy.dtype("float32"), tensor.shape))
            self.assertEqual((tensor.data.dtype, tensor.data.nbytes), (numpy.dtype("uint8"), tensor.nbytes))
            numpy.testing.assert_array_equal(tensor.data.view("<f4"), numbers)
            if line["source"] in weights and not line["sorted"]:
                numpy.testing.assert_array_equal(numbers, weights[line["source"]])
                compared += 1
        self.assertGreater(compared, 10)

    def test_blocks_of_a_gguf_file_are_decoded(self):
        blocks = self.folder / "q8.gguf"
        trueup.quantize(self.stories_file, blocks, bits=8)
        tensors = trueup.read_gguf(str(blocks)).tensors.values()
        quantized = [tensor for tensor in tensors if tensor.dtype == "q8_0"]
        self.assertGreater(len(quantized), 10)
        for tensor in quantized:
            rows, columns = tensor.shape
            data = tensor.data.reshape(rows, columns // 32, 34)
            scales = data[:, :, :2].copy().view("<f2").astype("<f4")
            expected = (scales * data[:, :, 2:].view("i1")).reshape(rows, columns)
            numpy.testing.assert_array_equal(tensor.to_float32(), expected)

    def test_a_model_is_split_by_layers_and_keys_are_set(self):
        target = self.folder / "layers.gguf"
        keys = {"general.name": "Fable", "general.file_type": 0}
        report = trueup.convert(STORIES, target, split="layers", metadata=keys, threads=1)["report"]
        layers = json.loads((STORIES / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"]
        self.assertEqual(len(report["files"]), layers + 2)
        file = trueup.read_gguf(report["files"][0])
        self.assertEqual((file.metadata["general.name"], file.metadata["general.file_type"]), ("Fable", 0))
        whole = trueup.read_gguf(self.stories_file).tensors
        self.assertEqual(list(file.tensors), list(whole))
        for name, tensor in file.tensors.items():
            numpy.testing.assert_array_equal(tensor.data, whole[name].data)
        sized = trueup.convert(STORIES, self.folder / "sized.gguf", split=500_000)["report"]["files"]
        self.assertGreater(len(sized), 2)

    def test_a_model_keeps_fewer_tokens(self):
        listed, slim = self.folder / "ids", self.folder / "slim.gguf"
        listed.write_text("0-399\n", encoding="utf-8")
        trueup.convert(STORIES, slim, prune_vocab=f"ids:{listed}")
        former = self.folder / "former.gguf"
        trueup.convert(STORIES, former, slim_vocab=f"ids:{listed}")
        self.assertEqual(former.read_bytes(), slim.read_bytes())
        kept = trueup.read_gguf(slim).metadata["trueup.vocabulary.source_ids"]
        self.assertLess(len(kept), len(self.stories.metadata["tokenizer.ggml.tokens"]))
        ids = [kept.index(id) for id in self.stories.tokenize("a")]
        logits = self.stories.logits(self.stories.tokenize("a"))[:, kept]
        numpy.testing.assert_array_equal(trueup.Model(slim).logits(ids), logits)

    def test_files_of_fastllm_go_both_ways(self):
        flm, back = self.folder / "tiny.flm", self.folder / "back.gguf"
        lines = trueup.convert(TINY, flm)["report"]["tensors"]
        self.assertTrue(all(line["max_error"] == 0 for line in lines))
        trueup.convert(flm, back, "f32")
        before, after = trueup.read_gguf(self.tiny_file).tensors, trueup.read_gguf(back).tensors
        # FastLLM knows no head that is the embedding.
        self.assertEqual(set(after) - set(before), {"output.weight"})
        for name, tensor in before.items():
            numpy.testing.assert_array_equal(after[name].to_float32(), tensor.to_float32())
        codes = trueup.quantize(flm, self.folder / "tiny-8.flm", bits=8)["tensors"]
        self.assertGreater(max(line["rmse"] for line in codes), 0)

    def test_verification_passes(self):
        report = trueup.verify(self.stories_file, prompts=["Once upon a time"], steps=2)
        self.assertEqual(report["result"], "pass", report["sentence"])
        self.assertEqual(report["coverage"]["checked"], report["coverage"]["nodes"])
        self.assertEqual((len(report["prompts"]), report["steps"]), (1, 2))

    def test_what_is_wrong_is_said(self):
        damaged = self.folder / "damaged.gguf"
        damaged.write_bytes(self.stories_file.read_bytes()[:1000])
        target = self.folder / "never.gguf"
        cases = [
            ("damaged.gguf", lambda: trueup.Model(damaged)),
            ("missing", lambda: trueup.convert(self.folder / "missing", target)),
            ("unknown device gpu", lambda: trueup.Model(self.stories_file, device="gpu")),
            ('found "q9_9"', lambda: trueup.quantize(self.stories_file, target, "q9_9")),
            ('found "flat"', lambda: trueup.quantize(self.stories_file, target, "q4_0", layout="flat")),
            ("found \"q9_9\"", lambda: trueup.quantize(self.stories_file, target, output_tensor_type="q9_9")),
            ("expected REGEX=TYPE", lambda: trueup.quantize(self.stories_file, target, "q4_0", rules=["ffn"])),
            ("no tensor name matches", lambda: trueup.convert(STORIES, target, "q4_0", rules=["none=q8_0"])),
            ("missing.gguf", lambda: trueup.quantize(self.stories_file, target, "q4_0", imatrix="missing.gguf")),
            ("pass imatrix too", lambda: trueup.convert(STORIES, target, "q4_0", imatrix_exact=True)),
            ("expected 4, 8 or 16", lambda: trueup.quantize(self.stories_file, target, bits=5)),
            ("pass only one", lambda: trueup.quantize(self.stories_file, target, "q4_0", bits=4)),
            ("16, 8 or 4 bits", lambda: trueup.quantize(TINY, self.folder / "never.flm", "q8_0")),
            ("diff", lambda: trueup.convert(TINY, self.folder / "never.flm", check=True)),
            ("expected \"layers\"", lambda: trueup.convert(STORIES, target, split="heads")),
            ("ids:FILE", lambda: trueup.convert(STORIES, target, prune_vocab="some")),
            ("damaged.gguf", lambda: trueup.read_gguf(damaged)),
            ("missing", lambda: trueup.read_gguf(self.folder / "missing")),
            ("expected token IDs from 0 to", lambda: self.stories.detokenize([10**6])),
            ("use IDs of this model", lambda: self.stories.logits([10**6])),
            ("no tokens", lambda: self.stories.logits([])),
            ("temperature", lambda: self.stories.generate("Lily", 1, temperature=-1.0)),
            ("unknown device gpu", lambda: trueup.verify(self.stories_file, reference="gpu")),
        ]
        for part, call in cases:
            with self.subTest(part=part), self.assertRaises(trueup.TrueupError) as caught:
                call()
            self.assertIn(part, str(caught.exception))
        self.assertFalse(target.exists())
        for call in (lambda: self.stories.logits([-1]), lambda: self.stories.generate("Lily", max_tokens=-1)):
            with self.assertRaises(OverflowError):
                call()
        with self.assertRaises(TypeError):
            self.stories.logits("Lily")


class Stub(unittest.TestCase):
    """The stub says what the module has."""

    def test_the_version_is_the_package_s(self):
        self.assertEqual(trueup.__version__, importlib.metadata.version("trueup"))

    def test_functions_have_the_same_arguments(self):
        tree = ast.parse(STUB.read_text(encoding="utf-8"))
        functions = {}
        for node in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            functions[node.name] = (getattr(trueup, node.name), node)
        for name in ("GgufFile", "GgufTensor", "Model", "Service"):
            model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
            kind = getattr(trueup, name)
            for node in model.body:
                if isinstance(node, ast.FunctionDef) and not node.decorator_list and node.args.vararg is None:
                    function = kind if node.name == "__new__" else getattr(kind, node.name)
                    functions[f"{name}.{node.name}"] = (function, node)
                elif isinstance(node, ast.FunctionDef) and node.decorator_list:
                    with self.subTest(property=f"{name}.{node.name}"):
                        self.assertEqual([decorator.id for decorator in node.decorator_list], ["property"])
                        self.assertTrue(inspect.isgetsetdescriptor(getattr(kind, node.name)))
            stubbed = {node.name for node in model.body if isinstance(node, ast.FunctionDef)}
            here = {member for member in vars(kind) if not member.startswith("_")}
            self.assertEqual(here, {member for member in stubbed if not member.startswith("_")})
        self.assertEqual(len(functions), 19)
        for name, (function, node) in functions.items():
            signature = inspect.signature(function).parameters.values()
            actual = {p.name: p.default for p in signature if p.name != "self"}
            arguments = [a.arg for a in node.args.args]
            required = [inspect.Parameter.empty] * (len(arguments) - len(node.args.defaults))
            defaults = required + [ast.literal_eval(default) for default in node.args.defaults]
            stubbed = {a: default for a, default in zip(arguments, defaults) if a not in ("self", "cls")}
            with self.subTest(function=name):
                self.assertEqual(stubbed, actual)

    def test_nothing_is_missing(self):
        tree = ast.parse(STUB.read_text(encoding="utf-8"))
        stubbed = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        exported = next(node.value for node in tree.body if isinstance(node, ast.Assign))
        self.assertEqual(set(ast.literal_eval(exported)), set(trueup.__all__))
        # The extension itself lies in the package as a module of the same name.
        self.assertEqual(stubbed, {name for name in vars(trueup) if not name.startswith("_")} - {"trueup"})


if __name__ == "__main__":
    unittest.main()
