#!/usr/bin/env python3
"""Write the tiny tokenizers that fold characters or are unigram models, with ids of hard texts.

    python scripts/make_tokenizer_fixtures.py [--out fixtures/tokenizers]
    python scripts/make_tokenizer_fixtures.py --compare target/release/examples/ids [--texts 3000]

Every folder has tokenizer.model, ice_text.model or tokenizer.json and golden.json: ids and decoded texts by the sentencepiece library, and for
tokenizer.json by the tokenizers library. The character map is a small one of our own (RULES), for that of nmt_nfkc has 240 KB.

--compare writes nothing: it trains models with sentencepiece's own maps, whole, in all combinations of their settings, and compares ids and
decoded texts of random Unicode texts and of every character with those of the example `ids` (cargo build --release -p trueup-tokenizer --example ids).
"""
import argparse
import io
import json
import os
import random
import subprocess
import tempfile
import unicodedata
from importlib.metadata import version

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from fixture_texts import corpus, hard_texts
from fixture_tokenizers import IceText, write_json

# Pieces that are found whole: by themselves, in folded text, over each other, with a space.
SYMBOLS = ["<sep>", "ab", "bc", "\ufb01", "\uff21", "  x", "\u2581\u2581\u2581"]
# What is folded: keys of several characters, of which the longest counts, and to nothing, a space, several characters.
RULES = {chr(c): unicodedata.normalize("NFKC", chr(c)) for c in [*range(0xff01, 0xff5f), *range(0xff66, 0xff9e), *range(0xfb00, 0xfb05), *range(0x2460, 0x2474)]}
RULES |= {"\uff76\uff9e": "\u30ac", "\uff8a\uff9f": "\u30d1", "e\u0301": "\u00e9", "e\u0301\u0323": "\u1eb9\u0301", "\u1112\u1161\u11ab": "\ud55c",
          "\u1112\u1161": "\ud558", "\u3000": " ", "\u00a0": " ", "\t": " ", "\n": " ", "\u200b": "", "\u00ad": "", "\u2026": "...", "\ufdfa": "a b  c ",
          "\u2167": "VIII", "\U0001d400": "A"}
MODELS = {
    "unigram": dict(model_type="unigram", vocab_size=330, user_defined_symbols=SYMBOLS),
    "unigram-bytes": dict(model_type="unigram", vocab_size=560, byte_fallback=True, remove_extra_whitespaces=False),
    "bpe-map": dict(model_type="bpe", vocab_size=380, user_defined_symbols=SYMBOLS),
    "bpe-map-bytes": dict(model_type="bpe", vocab_size=600, byte_fallback=True, add_dummy_prefix=False, user_defined_symbols=SYMBOLS),
}
ICE_TEXT = dict(model_type="bpe", vocab_size=464, byte_fallback=True,
                user_defined_symbols=[symbol for symbol, _ in IceText.WHITE] + list(IceText.SPECIAL))
WORDS = [
    "\uff08\uff28\uff45\uff4c\uff4c\uff4f\uff0c\u3000\uff37\uff4f\uff52\uff4c\uff44\uff01\uff09", "\ufb01n \ufb02at \ufb03 a\ufb00air", "\uff76\uff9e\uff76\uff9f\uff8a\uff9f\uff9e",
    "e\u0301 e\u0301\u0323 e\u0323\u0301 ee", "\u1112\u1161\u11ab\u1112\u1161\u1112", "a\u0000b", "\u0000", "\u200b \u200ba\u00ad", "\u3000\u3000", "\ufdfa\ufdfa", "\u2026\u2467\u2167",
    "\U0001d400\U0001d401", "\u2581\u2581\u2581\u2581", "a  xb", "abc", "bcab", "ab\uff22\uff43", "\uff1csep>", "x<sep> <sep>y", "\u65e5\u672c\u65e5", "the\u2581\u2581\u2581the", "\uff21A\uff22",
]


def train(rules, **options):
    """The bytes of a model; `rules` are a name of sentencepiece or a dictionary."""
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        named = dict(normalization_rule_name=rules)
        if isinstance(rules, dict):
            path = os.path.join(folder, "rules.tsv")
            with open(path, "w", encoding="utf-8") as file:
                for key, value in rules.items():
                    file.write(" ".join(f"{ord(c):x}" for c in key) + "\t" + " ".join(f"{ord(c):x}" for c in value) + "\n")
            named = dict(normalization_rule_tsv=path)
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus(17)), model_writer=model, character_coverage=0.985, num_threads=1,
                                                 minloglevel=2, **named, **options)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    return proto.SerializeToString()


# ---------------------------------------------------------------- goldens

def golden(folder, texts, encode, decode, library):
    """Ids of the texts, and what comes back of them."""
    command = "python scripts/make_tokenizer_fixtures.py"
    cases = [dict(text=text, ids=encode(text), decoded=decode(encode(text))) for text in texts]
    write_json(folder, "golden.json", dict(command=command, versions={library: version(library)}, texts=cases))


def plain_texts():
    """Hard texts without what the transformers library finds in texts and sentencepiece does not."""
    texts = hard_texts(["<sep>"]) + WORDS
    return [text for text in texts if not any(word in text for word in ("<unk>", "<s>", "</s>"))]


def with_unknown(model, decode):
    """Sentencepiece writes what is unknown as a sign of its own; the name of the token stands there in our texts."""
    unknown = model.unk_id()
    return lambda ids: None if unknown in ids else decode(ids)


def write_fixtures(out):
    def folder(name):
        path = os.path.join(out, name)
        os.makedirs(path, exist_ok=True)
        return path

    for name, options in MODELS.items():
        model = train(RULES, **options)
        with open(os.path.join(folder(name), "tokenizer.model"), "wb") as file:
            file.write(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        golden(folder(name), plain_texts(), processor.encode, with_unknown(processor, processor.decode), "sentencepiece")
        if name == "unigram-bytes":
            write_tokenizer_json(folder("unigram-json"), model)
    model = train(RULES, **ICE_TEXT)
    with open(os.path.join(folder("ice-text-map"), "ice_text.model"), "wb") as file:
        file.write(model)
    ice_text = IceText(model, 0)
    texts = [text for text in plain_texts() if not any(symbol in text for symbol, _ in IceText.WHITE)]
    golden(folder("ice-text-map"), texts, lambda text: ice_text.encode(text, False), ice_text.decode, "sentencepiece")


def write_tokenizer_json(folder, model):
    """The same map and pieces as tokenizer.json, where the tokenizers library applies the map by its own rule."""
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    tokenizer = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in proto.pieces], 0, True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap), normalizers.Strip(False, True)])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    write_json(folder, "tokenizer.json", json.loads(tokenizer.to_str()))
    texts = hard_texts(["<s>"]) + WORDS
    golden(folder, texts, lambda text: tokenizer.encode(text, add_special_tokens=False).ids, lambda ids: tokenizer.decode(ids, skip_special_tokens=False),
           "tokenizers")


# ---------------------------------------------------------------- comparison

POOLS = [[*range(32, 127)], [0x20, 0x20, 0x3000, 0xa0, 9, 10, 0x2581, 0x200b, 0xfeff, 0, 1, 0x7f, 0x85, 0xad, 0x2028], [*range(0xff01, 0xffa0)],
         [*range(0xfb00, 0xfb50)], [*range(0x300, 0x370)], [*range(0x1100, 0x1200)], [*range(0xac00, 0xac80)], [*range(0xc0, 0x250)],
         [*range(0x4e00, 0x4f00)], [*range(0x2460, 0x2500)], [*range(0xf900, 0xfa6e)], [*range(0x1f600, 0x1f650), 0x200d, 0xfe0f, 0x1f3fd],
         [*range(0xfdf0, 0xfe00)], [*range(0x2f800, 0x2f850)], [*range(0x900, 0x980)], [*range(0xe01, 0xe50)], [*range(0x1d400, 0x1d500)]]


def random_text(rng, lines):
    parts = []
    for _ in range(rng.randrange(7)):
        kind = rng.random()
        if kind < 0.15:
            parts.append(rng.choice(SYMBOLS))
        elif kind < 0.35:
            parts.append(rng.choice(lines)[:rng.randrange(60)])
        else:
            pool = rng.choice(POOLS)
            parts.append("".join(chr(rng.choice(pool)) for _ in range(rng.randrange(1, 6))))
    return "".join(parts)


def texts_to_compare(count):
    rng, lines = random.Random(5), corpus(3)
    characters = [chr(c) for c in range(0x110000) if not 0xd800 <= c < 0xe000]
    groups = ["".join(characters[i:i + 16]) for i in range(0, len(characters), 16)]
    among = ["a" + "b".join(group) + " " for group in groups] + ["".join(c + "\u0301\u3099" for c in group) for group in groups[:0x3000]]
    return plain_texts() + [random_text(rng, lines) for _ in range(count)], among, "\n".join(corpus(9, 30000))


def compare(ids_program, count):
    """All combinations of settings; the texts of every character and the long one with a few of them."""
    texts, among, long_text = texts_to_compare(count)
    total = different = 0
    for rules in ("nmt_nfkc", "nfkc", "nmt_nfkc_cf"):
        for number in range(32):
            kind, symbols = ("unigram", "bpe")[number & 1], SYMBOLS if number & 2 else []
            options = dict(byte_fallback=bool(number & 4), remove_extra_whitespaces=bool(number & 8), add_dummy_prefix=bool(number & 16))
            size = 420 if kind == "bpe" else 360
            model = train(rules, model_type=kind, user_defined_symbols=symbols, vocab_size=size + 256 * options["byte_fallback"], **options)
            tried = texts + (among + [long_text] if number in (9, 12, 29) else [])
            wrong = differences(ids_program, model, tried)
            total, different = total + len(tried), different + len(wrong)
            print(f"{rules} {kind} {options} symbols={bool(symbols)}: {len(tried)} texts, {len(wrong)} differ {wrong[:2]!r:.300}", flush=True)
    print(f"{total} texts, {different} differ")
    return 1 if different else 0


def differences(ids_program, model, texts):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    with tempfile.NamedTemporaryFile(suffix=".model") as file:
        file.write(model)
        file.flush()
        lines = "".join(json.dumps(text) + "\n" for text in texts)
        run = subprocess.run([ids_program, file.name], input=lines, capture_output=True, text=True, check=True)
    decode = with_unknown(processor, processor.decode)
    wrong = []
    for text, line in zip(texts, run.stdout.split("\n")):
        ids, decoded = json.loads(line)
        expected = processor.encode(text)
        if ids != expected or decode(expected) not in (None, decoded):
            wrong.append(text)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="fixtures/tokenizers")
    parser.add_argument("--compare", metavar="PROGRAM")
    parser.add_argument("--texts", type=int, default=3000)
    arguments = parser.parse_args()
    if arguments.compare:
        return compare(arguments.compare, arguments.texts)
    write_fixtures(arguments.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
