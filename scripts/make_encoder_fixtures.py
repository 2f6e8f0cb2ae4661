#!/usr/bin/env python3
"""Write the tiny random encoders and their goldens.

    python scripts/make_encoder_fixtures.py [--out fixtures/encoders] [NAME ...]

For every encoder: a Hugging Face folder (bf16 weights on a grid that bf16 and f16 both hold exactly) with golden.json and
golden.safetensors: for each prompt the last hidden states and the pooled vector, computed in float64 by the transformers
library and by the rule of sentence-transformers (mean over the tokens, or the first token), and ids of hard texts.

--characters writes fixtures/bert-characters.json: what the tokenizers library does with every character.
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

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from fixture_texts import PROMPTS, corpus, hard_texts
from fixture_tokenizers import write_json
from make_fixtures import compact, golden_texts, on_grid

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ENCODERS = {
    # Names without a prefix, tokenizer.json, text in lower case, the mean of all tokens.
    "bert": dict(kind="BertModel", lowercase=True, pooling="mean"),
    # Names with a prefix and a pre-training head, vocab.txt only, text as it is, the first token.
    "bert-cased": dict(kind="BertForMaskedLM", lowercase=False, pooling="cls"),
}
SIZES = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, max_position_embeddings=128)
HARD = ["Straße ÀÉÎÕÜ naïve café e\u0301", "ＡＢＣ １２３", "tokyo東京tower", "it's isn't we'll", "a\u200bb\u00adc", "x\ty\nz\u00a0w\u3000v",
        "!!! ... ¿qué? «oui» “so”", "supercalifragilistic" * 8, "İstanbul ΣΑΣ ǅ", "\ufffd\u0000\u0007a", "\u0301\u0323", "[CLS] [mask] [MASK]", "▁the ##ing",
        "👩‍👩‍👧 😀", "$5+3=8 ~`^|<>", "한국어 हिन्दी ไทย", "don 't do not", "A.B,C!D?E"]


def tokenizer_of(folder, lowercase):
    """A WordPiece tokenizer that is trained on the corpus, and its files."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=SPECIAL, limit_alphabet=160, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    vocab = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8", newline="\n") as file:
        file.write("".join(token + "\n" for token in vocab))
    fast = transformers.BertTokenizerFast(vocab_file=os.path.join(folder, "vocab.txt"), do_lower_case=lowercase,
                                          clean_up_tokenization_spaces=False)
    fast.save_pretrained(folder)
    if not lowercase:
        os.remove(os.path.join(folder, "tokenizer.json"))
    return transformers.AutoTokenizer.from_pretrained(folder)


def fill(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean, deviation = 0.0, 1.5 / parameter.shape[-1] ** 0.5
            if name.endswith("bias"):
                deviation = 0.3
            elif "LayerNorm" in name:
                mean, deviation = 1.0, 0.35
            elif "embeddings" in name:
                deviation = 0.5
            parameter.copy_(on_grid(torch.randn(parameter.shape, generator=generator) * deviation + mean))


def hidden_of(model, ids):
    base = getattr(model, "bert", model)
    with torch.no_grad():
        return base(torch.tensor([ids])).last_hidden_state[0].double()


def pooled(hidden, pooling):
    return hidden.mean(0) if pooling == "mean" else hidden[0]


def write_modules(folder, pooling):
    module = lambda idx, path, kind: {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{kind}"}
    write_json(folder, "modules.json", [module(0, "", "Transformer"), module(1, "1_Pooling", "Pooling"), module(2, "2_Normalize", "Normalize")])
    os.makedirs(os.path.join(folder, "1_Pooling"))
    write_json(os.path.join(folder, "1_Pooling"), "config.json", {
        "word_embedding_dimension": SIZES["hidden_size"],
        "pooling_mode_cls_token": pooling == "cls",
        "pooling_mode_mean_tokens": pooling == "mean",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    })


def make(name, spec, out):
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    tokenizer = tokenizer_of(folder, spec["lowercase"])
    config = transformers.BertConfig(vocab_size=len(tokenizer), attn_implementation="eager", **SIZES)
    model = getattr(transformers, spec["kind"])(config).double().eval()
    fill(model, 1)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder, safe_serialization=True)
    write_modules(folder, spec["pooling"])
    saved = getattr(transformers, spec["kind"]).from_pretrained(folder, attn_implementation="eager", dtype=torch.float64).eval()
    arrays, prompts = {}, []
    for i, text in enumerate(PROMPTS):
        ids = tokenizer.encode(text)
        hidden = hidden_of(saved, ids)
        assert torch.equal(hidden, hidden_of(model, ids)), "the saved folder is another model"
        without_types = copy.deepcopy(model)
        getattr(without_types, "bert", without_types).embeddings.token_type_embeddings.weight.data.zero_()
        assert float(((hidden_of(without_types, ids) - hidden) ** 2).sum() / (hidden ** 2).sum()) > 1e-3
        arrays[f"hidden_{i}"], arrays[f"pooled_{i}"] = hidden.float(), pooled(hidden, spec["pooling"])[None].float()
        prompts.append({"text": text, "ids": ids})
    save_file({key: value.contiguous() for key, value in arrays.items()}, os.path.join(folder, "golden.safetensors"))
    names = ("torch", "transformers", "tokenizers", "safetensors")
    golden = {"command": f"python scripts/make_encoder_fixtures.py {name}", "versions": {n: version(n) for n in names}, "model": name,
              "pooling": spec["pooling"], "prompts": prompts, "texts": golden_texts(tokenizer, hard_texts(SPECIAL) + HARD), "chat": None}
    with open(os.path.join(folder, "golden.json"), "w", encoding="utf-8", newline="\n") as file:
        file.write(compact(golden))
    for entry in os.listdir(folder):
        path = os.path.join(folder, entry)
        os.chmod(path, 0o755 if os.path.isdir(path) else 0o644)
    print(f"{name}: {[len(p['ids']) for p in prompts]} tokens, {folder_size(folder)} bytes", flush=True)


def folder_size(folder):
    return sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(folder) for name in names)


def ranges(characters):
    found = []
    for c in characters:
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def write_characters(path):
    """Ranges of characters that clean_text drops or turns into spaces, of accents, ideographs and punctuation."""
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    clean, accents = normalizers.BertNormalizer(**dict(off, clean_text=True)), normalizers.BertNormalizer(**dict(off, strip_accents=True))
    ideographs, cut = normalizers.BertNormalizer(**dict(off, handle_chinese_chars=True)), pre_tokenizers.BertPreTokenizer()
    characters = [c for c in range(0x110000) if not 0xd800 <= c < 0xe000]
    sets = {
        "dropped": [c for c in characters if clean.normalize_str(chr(c)) == ""],
        "spaces": [c for c in characters if clean.normalize_str(chr(c)) == " "],
        "accents": [c for c in characters if accents.normalize_str(chr(c)) == ""],
        "ideographs": [c for c in characters if ideographs.normalize_str(chr(c)) != chr(c)],
        "punctuation": [c for c in characters if [p for p, _ in cut.pre_tokenize_str(f"a{chr(c)}b")] == ["a", chr(c), "b"]],
    }
    golden = {"command": "python scripts/make_encoder_fixtures.py --characters", "versions": {"tokenizers": version("tokenizers")}}
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(compact(dict(golden, **{key: sum(ranges(value), []) for key, value in sets.items()})))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="fixtures/encoders")
    parser.add_argument("--characters", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    if arguments.characters:
        return write_characters("fixtures/bert-characters.json")
    for name in arguments.names or ENCODERS:
        make(name, ENCODERS[name], arguments.out)


if __name__ == "__main__":
    main()
