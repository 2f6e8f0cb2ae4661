#!/usr/bin/env python3
"""Write the tokenizer sections of model families with byte-level BPE, and ids of texts by the tokenizers library.

    pip install tokenizers==0.22.2
    python scripts/make_family_tokenizers.py SOURCE [fixtures/family-tokenizers.json]

SOURCE is the source folder of llama.cpp: one list of letters is too long to repeat here.

Each family has the sections that the tokenizer.json of its models has: normalizer, pre_tokenizer, post_processor,
decoder, and added tokens of each kind. All share one small vocabulary: the bytes, and merges that were learned without
any splitting of texts, so that merges reach across all boundaries, and a wrong boundary changes the ids. `pre` is the
name that llama.cpp's converter gives to the family.
"""
import argparse
import json
from importlib.metadata import version
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from fixture_texts import corpus, hard_texts
from fixture_tokenizers import added
from make_pre_tokenizer_fixture import (BLOOM, DEEPSEEK3, GPT4O, HAN_AND_HANGUL, KANA_AND_HAN, LLAMA3, QWEN2, TEKKEN,
                                        deepseek_letters, digits, punctuation, split)

MERGES = 700
# No merge leads to this token: it is found only if merges are ignored.
UNMERGED = "\u0120lighthouse"
TEXTS = [text for text in hard_texts([]) if text] + [
    "0123456789 00 1234567890123 12.5%", "def f(a, b):\n        return a+b;\n\n\n    # done\t\t\n", "it's IT'S l'été O'Neil's",
    "a<s>b <s> c", "<|endoftext|>x<|endoftext|>", "2024\u5e7412\u670831\u65e5\u3001\u6771\u4eac", "\u2460\u00bd\u0663\u0664 H\u2082O", "(!?) ... --> x_y::z"]


def level(prefix=False, trim=True, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim, "use_regex": regex}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def kept(pattern):
    """Only the matches are kept, as converters from tiktoken write it."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": True}


def first(*tokens):
    """Tokens before each text."""
    pieces = [{"SpecialToken": {"id": token, "type_id": 0}} for token in tokens]
    of = {token: {"id": token, "ids": [token], "tokens": [token]} for token in tokens}
    sequences = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    return {"type": "TemplateProcessing", "single": pieces + sequences[:1], "pair": pieces + sequences, "special_tokens": of}


def after_bytes(*tokens):
    return {"type": "Sequence", "processors": [level(True, False, True), first(*tokens)]}


NFC = {"type": "NFC"}
SPACES = [added(" " * count, special=False, normalized=True) for count in range(12, 1, -1)]
TABS = [added("\t" * count, special=False) for count in range(5, 1, -1)]
END = [added("<|endoftext|>")]
BEGIN = [added("<s>")]
STARCODER = sequence(digits(True), level())


def families(source):
    """Name: name in llama.cpp, normalizer, pre_tokenizer, post_processor, decoder, added tokens, whether merges may be ignored."""
    empty = {"type": "Sequence", "normalizers": []}
    llm = sequence(split("[\r\n]"), split(r"\s?" + deepseek_letters(source)), split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"),
                   split(HAN_AND_HANGUL), digits(True), level(regex=False))
    coder = sequence(split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(HAN_AND_HANGUL), digits(True), level(regex=False))
    three = sequence(split(r"\p{N}{1,3}"), split(KANA_AND_HAN), split(DEEPSEEK3), level(regex=False))
    falcon = sequence(punctuation("Contiguous"), level(), digits(False), split("[0-9][0-9][0-9]"))
    tiktoken = sequence(split(LLAMA3), level(regex=False))
    return {
        "bloom": ("bloom", None, sequence(split(BLOOM), level(regex=False)), level(True, False, False), level(True, True, False), BEGIN, False),
        "codeshell": ("codeshell", None, STARCODER, level(True, False), level(True), END, False),
        "command-r": ("command-r", NFC, STARCODER, first("<s>"), level(True), BEGIN, False),
        "deepseek-coder": ("deepseek-coder", empty, coder, first("<s>"), level(True), BEGIN, False),
        "deepseek-llm": ("deepseek-llm", empty, llm, first("<s>"), level(True), BEGIN, False),
        "deepseek-v3": ("deepseek-v3", empty, three, first("<s>"), level(True), BEGIN, False),
        "falcon": ("falcon", None, falcon, level(True, False), level(True), END, False),
        "glm4": ("chatglm-bpe", None, tiktoken, first("<s>"), level(True), BEGIN, False),
        "gpt2": ("gpt-2", None, level(), level(True, False), level(True), END, False),
        "gptneox": ("olmo", NFC, level(), level(), level(), END + SPACES, False),
        "granite": ("refact", None, STARCODER, level(True, False), level(True), END, False),
        "llama3": ("llama-bpe", None, tiktoken, after_bytes("<s>"), level(True), BEGIN, True),
        "mistral-nemo": ("tekken", None, sequence(split(TEKKEN), level(regex=False)), first("<s>"), level(True), BEGIN, True),
        "olmo2": ("dbrx", None, sequence(kept(LLAMA3), level(regex=False)), None, level(True), END, False),
        "phi2": ("phi-2", None, level(), level(True, False), level(True), END + SPACES + TABS, False),
        "phi4-mini": ("gpt-4o", None, sequence(kept(GPT4O), level(regex=False)), None, level(True), END, False),
        "qwen2": ("qwen2", NFC, sequence(split(QWEN2), level(trim=False, regex=False)), level(trim=False, regex=False), level(trim=False, regex=False), END, False),
        "smollm": ("smollm", None, STARCODER, None, level(True), END, False),
        "stablelm2": ("stablelm2", NFC, sequence(kept(QWEN2), level(regex=False)), None, level(True), END, False),
        "starcoder": ("starcoder", None, STARCODER, level(True, False), level(True), END, False),
    }  # fmt: skip


def merges():
    """Merges of texts that are not split."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=256 + MERGES, show_progress=False, max_token_length=8,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(corpus(7, 60) + TEXTS * 3, trainer)
    return [list(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def tokenizer_json(learned, normalizer, pre_tokenizer, post_processor, decoder, tokens, ignore_merges):
    # Two merges may lead to one token.
    vocabulary = list(dict.fromkeys([*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in learned), UNMERGED]))
    ids = {token["content"]: len(vocabulary) + place for place, token in enumerate(tokens)}
    post_processor = json.loads(json.dumps(post_processor))
    for part in (post_processor or {}).get("processors", [post_processor]):
        for token in (part or {}).get("special_tokens", {}).values():
            token["ids"] = [ids[text] for text in token["tokens"]]
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [dict(id=ids[token["content"]], **token) for token in tokens],
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": decoder,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": ignore_merges,
                      "vocab": {token: place for place, token in enumerate(vocabulary)}, "merges": learned}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", nargs="?", default="fixtures/family-tokenizers.json")
    arguments = parser.parse_args()
    target, source = arguments.target, (arguments.source / "src/llama-vocab.cpp").read_text(encoding="utf-8")
    learned = merges()
    distinct = [[] for _ in TEXTS]
    lines = []
    for name, (pre, *sections) in families(source).items():
        value = tokenizer_json(learned, *sections)
        tokenizer = Tokenizer.from_str(json.dumps(value))
        ways = []
        for known, text in zip(distinct, TEXTS):
            encoding = tokenizer.encode(text)
            assert tokenizer.decode(encoding.ids, skip_special_tokens=False) is not None
            if encoding.ids not in known:
                known.append(encoding.ids)
            ways.append(known.index(encoding.ids))
        kept_parts = {key: value[key] for key in ("added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder")}
        lines.append(dump({"name": name, "pre": pre, "ignore_merges": value["model"]["ignore_merges"], "sections": kept_parts, "ways": ways}))
    texts = [dump([text, *known]) for text, known in zip(TEXTS, distinct)]
    made = {"command": "python scripts/make_family_tokenizers.py SOURCE", "tokenizers": version("tokenizers"),
            "alphabet": "".join(sorted(pre_tokenizers.ByteLevel.alphabet())), "merges": [" ".join(pair) for pair in learned], "unmerged": UNMERGED}
    with open(target, "w", encoding="utf-8") as file:
        file.write(dump(made)[:-1] + ',\n"texts": [\n' + ",\n".join(texts) + '\n],\n"families": [\n' + ",\n".join(lines) + "\n]}\n")
    print(len(lines), "families,", sum(map(len, distinct)), "ways to encode", len(TEXTS), "texts,", Path(target).stat().st_size, "bytes")


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    main()
