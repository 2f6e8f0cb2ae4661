#!/usr/bin/env python3
"""Write the tiny random encoder-decoder models and their goldens.

    python scripts/make_encoder_decoder_fixtures.py [--out fixtures/encoder-decoders] [NAME ...]

For every model: a Hugging Face folder (bf16 weights on a grid that bf16 and f16 both hold exactly) with golden.json and
golden.safetensors. For each prompt: the ids that the encoder reads, ids of a decoder's text and the logits after each of
them, and the 16 tokens that greedy decoding gives from the decoder's first token, computed in float64 by the transformers
library. The seed is the first for which no greedy choice is close and the tokens are varied. The ids of hard texts are those
of the tokenizers library, and are compared with those of sentencepiece where that library knows all the tokens of a text.
"""
import argparse
import copy
import json
import os
import shutil
import sys
from importlib.metadata import version

# The kernels.py of this folder is not the optional package that transformers looks for.
sys.modules["kernels"] = None

import sentencepiece
import torch
import transformers
from safetensors.torch import save_file

from fixture_texts import PROMPTS, hard_texts
from fixture_tokenizers import write_json
from make_fixtures import GAP_MIN, GREEDY_TOKENS, SEEDS_MAX, compact, golden_texts, on_grid
from make_tokenizer_fixtures import RULES, WORDS, train

EXTRA_IDS = 4
DECODER_IDS = 12
DISTINCT_MIN = 6
SIZES = dict(d_model=64, d_ff=96, num_layers=2, num_heads=4, feed_forward_proj="relu", n_positions=512, dropout_rate=0.0)
MODELS = {
    # A tied head; heads that add up to the hidden size; the distances of published models.
    "t5": dict(config=dict(SIZES, d_kv=16, relative_attention_num_buckets=32), features=["buckets", "cross", "tied_scale"]),
    # A separate head, gates, heads of another size, more layers in the decoder, buckets that share distances early.
    "flan-t5": dict(config=dict(SIZES, d_kv=20, d_ff=64, feed_forward_proj="gated-gelu", tie_word_embeddings=False, num_layers=1,
                                num_decoder_layers=2,
                                relative_attention_num_buckets=16, relative_attention_max_distance=20),
                    features=["buckets", "cross"]),
    # A table of buckets in each layer.
    "umt5": dict(kind="UMT5", config=dict(d_model=32, d_ff=64, d_kv=16, num_heads=2, num_layers=2, num_decoder_layers=2, dropout_rate=0.0,
                                          relative_attention_num_buckets=16, relative_attention_max_distance=20),
                 features=["buckets", "own_tables", "cross", "tied_scale"]),
}


def tokenizer_of(folder, older):
    """A unigram model with a character map, as T5's: padding, end and unknown first, sentinels after the pieces. The `older` form
    of tokenizer.json is that of the published files."""
    model = train(RULES, model_type="unigram", vocab_size=330, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    path = os.path.join(folder, "spiece.model")
    with open(path, "wb") as file:
        file.write(model)
    fast = transformers.T5TokenizerFast(vocab_file=path, extra_ids=EXTRA_IDS, add_prefix_space=True, clean_up_tokenization_spaces=False)
    fast.save_pretrained(folder)
    os.remove(path)
    with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as file:
        config = {key: value for key, value in json.load(file).items() if key != "add_prefix_space"}
    write_json(folder, "tokenizer_config.json", config)
    if older:
        with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
            value = json.load(file)
        metaspace = {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True}
        value["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]}
        value["normalizer"] = next(n for n in value["normalizer"]["normalizers"] if n["type"] == "Precompiled")
        value["decoder"] = metaspace
        write_json(folder, "tokenizer.json", value)
    return transformers.AutoTokenizer.from_pretrained(folder), sentencepiece.SentencePieceProcessor(model_proto=model)


def fill(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean, deviation = 0.0, 1.3 / parameter.shape[-1] ** 0.5
            if name == "decoder.final_layer_norm.weight":
                # Logits that are far apart.
                mean, deviation = 0.0, 5.0
            elif "layer_norm" in name:
                mean, deviation = 1.0, 0.35
            elif name.endswith((".q.weight", ".k.weight")):
                # Scores are not scaled.
                deviation = 1.1 / parameter.shape[-1] ** 0.5
            elif "relative_attention_bias" in name:
                deviation = 1.5
            elif name.startswith(("shared", "lm_head")):
                deviation = 1.0
            parameter.copy_(on_grid(torch.randn(parameter.shape, generator=generator) * deviation + mean))


def logits_of(model, ids, decoder_ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([decoder_ids]), use_cache=False).logits[0].double()


def greedy(model, ids, forbidden):
    decoder, smallest = [model.config.decoder_start_token_id], float("inf")
    for _ in range(GREEDY_TOKENS):
        best = torch.topk(logits_of(model, ids, decoder)[-1], 2)
        gap = float(best.values[0] - best.values[1])
        if gap < GAP_MIN or int(best.indices[0]) in forbidden:
            return None
        smallest = min(smallest, gap)
        decoder.append(int(best.indices[0]))
    return (decoder[1:], smallest) if len(set(decoder)) >= DISTINCT_MIN else None


def find_seed(model, prompts, forbidden):
    for seed in range(SEEDS_MAX):
        fill(model, seed)
        results = []
        for ids in prompts:
            result = greedy(model, ids, forbidden)
            if result is None:
                break
            results.append(result)
        if len(results) == len(prompts):
            return seed, results
    raise SystemExit(f"no seed below {SEEDS_MAX} gives gaps of {GAP_MIN}")


def without(model, feature):
    other = copy.deepcopy(model)
    if feature == "own_tables":
        for stack in (other.encoder, other.decoder):
            tables = [block.layer[0].SelfAttention.relative_attention_bias.weight for block in stack.block]
            for table in tables[1:]:
                table.data.copy_(tables[0].data)
    if feature == "tied_scale":
        config = copy.deepcopy(model.config)
        config.tie_word_embeddings = False
        other = type(model)(config).double().eval()
        other.load_state_dict(model.state_dict())
    for name, parameter in other.named_parameters():
        if feature == "buckets" and "relative_attention_bias" in name:
            parameter.data.zero_()
        if feature == "cross" and "EncDecAttention.o" in name:
            parameter.data.zero_()
    return other


def check_features(model, features, ids, decoder_ids):
    expected, report = logits_of(model, ids, decoder_ids), {}
    for feature in features:
        error = logits_of(without(model, feature), ids, decoder_ids) - expected
        report[feature] = float((error ** 2).sum() / (expected ** 2).sum())
        assert report[feature] > 1e-3, f"{feature} changes the logits by {report[feature]} only"
    return report


def check_sentencepiece(tokenizer, processor, texts):
    added = list(tokenizer.get_added_vocab())
    plain = [text for text in texts if not any(token in text for token in added)]
    same = [text for text in plain if tokenizer.encode(text, add_special_tokens=False) == processor.encode(text)]
    return len(same), len(plain)


def make(name, spec, out):
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    tokenizer, processor = tokenizer_of(folder, name == "t5")
    texts = hard_texts(["<extra_id_0>", "</s>"]) + WORDS
    kind = spec.get("kind", "T5")
    config_class, model_class = (getattr(transformers, f"{kind}{end}") for end in ("Config", "ForConditionalGeneration"))
    config = config_class(vocab_size=len(tokenizer) + 2, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, **spec["config"])
    config._attn_implementation = "eager"
    model = model_class(config).double().eval()
    prompts = [tokenizer.encode(text) for text in PROMPTS]
    forbidden = {0, 1, 2} | set(range(processor.get_piece_size(), config.vocab_size))
    seed, results = find_seed(model, prompts, forbidden)
    decoders = [[0] + ids[:DECODER_IDS] for ids in reversed(prompts)]
    features = check_features(model, spec["features"], prompts[0], decoders[0])
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder, safe_serialization=True)
    saved = model_class.from_pretrained(folder, attn_implementation="eager", dtype=torch.float64).eval()
    arrays = {}
    for i, (ids, decoder_ids) in enumerate(zip(prompts, decoders)):
        logits = logits_of(saved, ids, decoder_ids)
        assert torch.equal(logits, logits_of(model, ids, decoder_ids)), "the saved folder is another model"
        arrays[f"logits_{i}"] = logits.float().contiguous()
    save_file(arrays, os.path.join(folder, "golden.safetensors"))
    names = ("torch", "transformers", "tokenizers", "sentencepiece", "safetensors")
    golden = {"command": f"python scripts/make_encoder_decoder_fixtures.py {name}", "versions": {n: version(n) for n in names},
              "model": name, "seed": seed, "nmse_without": features,
              "prompts": [{"text": t, "ids": ids, "decoder_ids": d, "greedy_ids": g, "min_gap": gap}
                          for t, ids, d, (g, gap) in zip(PROMPTS, prompts, decoders, results)],
              "texts": golden_texts(tokenizer, texts), "chat": None}
    with open(os.path.join(folder, "golden.json"), "w", encoding="utf-8", newline="\n") as file:
        file.write(compact(golden))
    for entry in os.listdir(folder):
        os.chmod(os.path.join(folder, entry), 0o644)
    size = sum(os.path.getsize(os.path.join(folder, entry)) for entry in os.listdir(folder))
    print(f"{name}: seed {seed}, {[len(p) for p in prompts]} tokens, without features {features}, texts as sentencepiece has "
          f"them {check_sentencepiece(tokenizer, processor, texts)}, {size} bytes", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="fixtures/encoder-decoders")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    for name in arguments.names or MODELS:
        make(name, MODELS[name], arguments.out)


if __name__ == "__main__":
    main()
