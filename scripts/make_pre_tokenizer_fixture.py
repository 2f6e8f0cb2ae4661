"""Writes fixtures/tokenizers/pre-tokenizer-names.json: ids that llama.cpp gives for each name of a pre-tokenizer.

    pip install gguf==0.19.0 regex==2026.5.9
    python scripts/make_pre_tokenizer_fixture.py LIBRARIES SOURCE

LIBRARIES is the folder with libllama.so, SOURCE is llama.cpp's source folder, both of the copy that llama-cpp-python 0.3.36
contains. The names are read from src/llama-vocab.cpp. One small vocabulary is trained on the texts below, so that every piece
that some rule makes is one token, and ids show where a text was cut. llama.cpp encodes each text with each name.
"""

import ctypes
import json
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

import gguf

TEXTS = [
    "Hello, world! I'm here; you'RE there, we'Ve DON'T it'LL he'd'S",
    "it's 'sit 'Twas 'em O'Neil's l'été d'Ivoire",
    "CamelCaseWORDS lowerUPPERMixed ABCdef XMLHttpRequest iPhone",
    "1 12 123 1234 12345 123456 1234567 a12b345c6789",
    "3.14 1,234,567.89 v1.2.3 2026-11-25 x86_64 0xFF 1e-9",
    "  123   4567 \t89\n1000",
    "٠١٢٣٤٥ १२३४ ①②③ Ⅳ ½ 一二三 x² H₂O",
    " a  b   c    d     e",
    "tab\tb\t\tc \t d\t \te",
    "a\nb\n\nc\n\n\nd \n e\n  f\n \n g",
    "a\r\nb\r\n\r\nc\rd \r\n e",
    "end   ", "end\n", "end \n", "end\n\n  ", "   ", "\n", "\n\n\n", "\t\t", " \n \n ",
    "!!! ... ?!?! --> <= >= != == => :: // /* */ ;; $$ ^^ ~~ || ``",
    "foo(bar)[baz]{qux} <tag attr=\"v\"/> a_b a-b a.b a@b.c #x $y %z",
    ".word ,word !Word ?WORD _x -y /z",
    "path/to/file\\n\nnext//\nlast/",
    "price: $5, €6, ¥7, ₹8 ±9 ≤10 ∞",
    "日本語のテキスト、カタカナ。ひらがな！漢字",
    "中文字符，测试。你好世界！ 中文 English混合text 第3章",
    "한국어 텍스트입니다. ㄱㄴㄷ 안녕하세요!",
    "ภาษาไทย ไม่มีช่องว่าง ກຂຄ ខ្មែរ မြန်မာ",
    "हिन्दी भाषा में पाठ। বাংলা ভাষা தமிழ்",
    "Привет мир! ЗДРАВСТВУЙТЕ ПриВет Ελληνικά ΑΒΓ",
    "مرحبا بالعالم، كيف؟ שלום עולם",
    "e\u0301te\u0301 n\u0303 a\u0308\u0323b \u0301x  \u0301",
    "Ünïcödé ﬁ ǅ ʰa ªº ß ẞ İı",
    "😀👍🏽 👨‍👩‍👧‍👦 🇩🇪 ❤️ a😀b 😀😀1",
    "zero\u200bwidth\u200djoin \ufeffbom \u00adsoft \u2060w",
    "a\u00a0b\u00a0\u00a0c\u3000d\u2003 e\u2028f\u0085g",
    "“quotes” ‘single’ — dash… «guillemets» ！？：；",
    "<sentinel:12> IMGIMGABCZ IMGIMGZ",
    "x\u0000y\u0007z\u001f",
    "ignored qzqzqz merges",
    "x" + " " * 21 + "y" + " " * 9 + "\n" + "z" + " " * 34,
    "ㄅㄆㄇ 〈〉︰﹏ ꧠ ⼀ 豈 𠀀𠀁 𝒜𝒷 𐐀𐐨",
    "if (a==1) {\n    return b+2;\n}\n\n\tfor(i=0;i<10;i++)\r\n",
]
PATTERNS = [
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lo}\p{M}]*[\p{Ll}\p{Lo}\p{M}]+('\p{L}+)?|\p{N}{2}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s|.",
]
# llama.cpp stops (an assertion) when these names meet runs of spaces or of line breaks that are not tokens.
ABORTS = {"gemma4", "granite-embed-multi-311m", "sarvam-moe", "whitespace"}
BOS, WHOLE = "<bos>", "Ġqzqzqz"


def alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = (b for b in range(256) if b not in printable)
    table = {b: chr(b) for b in printable}
    return table | {b: chr(256 + i) for i, b in enumerate(rest)}


def train(words, merges, count):
    """Merges the most frequent pairs; ties by text, so that a run repeats."""
    for _ in range(count):
        pairs = Counter()
        for word in words:
            pairs.update(zip(word, word[1:]))
        if not pairs:
            break
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append((left, right))
        for at, word in enumerate(words):
            merged, i = [], 0
            while i < len(word):
                pair = word[i : i + 2] == [left, right]
                merged.append(left + right if pair else word[i])
                i += 2 if pair else 1
            words[at] = merged


def vocabulary():
    import regex

    letters, merges = alphabet(), []
    pieces = sorted({piece.group() for text in TEXTS for pattern in PATTERNS for piece in regex.finditer(pattern, text)})
    pieces = [piece for piece in pieces if piece not in (" qzqzqz", "qzqzqz")]
    train([[letters[b] for b in piece.encode()] for piece in pieces], merges, 1300)
    # llama.cpp refuses merges of line breaks and spaces here.
    lines = [line for text in TEXTS if "qzqzqz" not in text for line in text.replace(" ", "▁").split("\n")]
    train([list(line) for line in lines if "\r" not in line], merges, 200)
    tokens = [letters[b] for b in range(256)] + [f"<0x{b:02X}>" for b in range(256)]
    known = set(tokens)
    characters = sorted({c for text in TEXTS[:20] for c in text} | {c for merge in merges for c in merge if len(c) == 1})
    for text in [*characters, "▁", *(left + right for left, right in merges), WHOLE, BOS]:
        if text not in known and text != " ":
            known.add(text)
            tokens.append(text)
    return tokens, merges


def write(path, pre, tokens, merges):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if t == BOS else 6 if re.fullmatch(r"<0x..>", t) else 1 for t in tokens])
    writer.add_token_merges([f"{left} {right}" for left, right in merges])
    writer.add_bos_token_id(tokens.index(BOS))
    writer.add_eos_token_id(tokens.index(BOS))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def load(libraries):
    for name in ("libggml-base.so", "libggml-cpu.so", "libggml.so"):
        ctypes.CDLL(str(libraries / name), ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(libraries / "libllama.so"))


class Params(ctypes.Structure):
    _fields_ = [
        ("devices", ctypes.c_void_p), ("overrides", ctypes.c_void_p), ("layers", ctypes.c_int32),
        ("split_mode", ctypes.c_int), ("load_mode", ctypes.c_int), ("lazy_mode", ctypes.c_int), ("main_gpu", ctypes.c_int32),
        ("tensor_split", ctypes.c_void_p), ("progress", ctypes.c_void_p), ("progress_data", ctypes.c_void_p),
        ("kv_overrides", ctypes.c_void_p), ("vocab_only", ctypes.c_bool), ("check_tensors", ctypes.c_bool),
        ("use_extra_bufts", ctypes.c_bool), ("no_host", ctypes.c_bool), ("no_alloc", ctypes.c_bool), ("load_mtp", ctypes.c_bool),
    ]  # fmt: skip


def encode_all(llama, path):
    llama.llama_model_default_params.restype = Params
    llama.llama_model_load_from_file.restype = ctypes.c_void_p
    llama.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Params]
    llama.llama_model_get_vocab.restype = ctypes.c_void_p
    llama.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
    llama.llama_model_free.argtypes = [ctypes.c_void_p]
    params = llama.llama_model_default_params()
    params.vocab_only = True
    model = llama.llama_model_load_from_file(str(path).encode(), params)
    assert model, path
    vocab = ctypes.c_void_p(llama.llama_model_get_vocab(model))
    ids, space = [], (ctypes.c_int32 * 4096)()
    for text in TEXTS:
        data = text.encode()
        count = llama.llama_tokenize(vocab, data, len(data), space, 4096, True, False)
        assert count >= 0, (path, text)
        ids.append(list(space[:count]))
    llama.llama_model_free(model)
    return ids


def main():
    libraries, source = Path(sys.argv[1]), Path(sys.argv[2])
    names = sorted(set(re.findall(r'tokenizer_pre == "([^"]+)"', (source / "src/llama-vocab.cpp").read_text())) - ABORTS)
    tokens, merges = vocabulary()
    llama = load(libraries)
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    llama.llama_log_set(quiet, None)
    results = [[] for _ in TEXTS]
    by_name = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = Path(folder) / "vocabulary.gguf"
            write(path, name, tokens, merges)
            places = []
            for found, ids in zip(results, encode_all(llama, path)):
                if ids not in found:
                    found.append(ids)
                places.append(found.index(ids))
            by_name[name] = places
    lines = [
        '"made_by": "scripts/make_pre_tokenizer_fixture.py with the llama.cpp of llama-cpp-python 0.3.36"',
        f'"bos": {tokens.index(BOS)}',
        f'"tokens": {json.dumps(tokens[512:], ensure_ascii=False)}',
        f'"merges": {json.dumps([f"{a} {b}" for a, b in merges], ensure_ascii=False)}',
        f'"texts": {json.dumps(TEXTS)}',
        f'"ids": {json.dumps(results, separators=(",", ":"))}',
        f'"names": {json.dumps(by_name, separators=(",", ":"))}',
    ]
    path = Path(__file__).parents[1] / "fixtures/tokenizers/pre-tokenizer-names.json"
    path.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")
    print(len(names), "names", len(tokens), "tokens", path.stat().st_size, "bytes")


main()
