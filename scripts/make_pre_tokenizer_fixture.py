"""Writes fixtures/pre-tokenizer-names.json: how llama.cpp and tokenizers split texts under each name.

    pip install gguf==0.19.0 numpy==2.4.6 tokenizers==0.22.2
    python scripts/make_pre_tokenizer_fixture.py LIBRARIES SOURCE

LIBRARIES is the folder with libllama.so and SOURCE is the source folder of llama.cpp, both of the copy in the source
distribution of llama-cpp-python 0.3.36. The names are read from src/llama-vocab.cpp.

The vocabulary makes every split visible. Each substring of a text is a token, and each way to cut a substring in two is
a merge. So every word becomes exactly one token, and the tokens of a text are its words. The last text is different:
its only substring is a token without a merge, so it stays whole only under names that ignore merges.

`tokenizers` runs the rule that a model publishes in its tokenizer.json, for the names whose model publishes one.
"""

import ctypes
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf

TEXTS = [
    # Contractions
    "I'm you'll he'd", "we'Ve DON'T it'S", "'re 'RE 'lL'x", "it''s 's'", "d'été l'Ivoire", "O'Neil'sx 'Twas", "Z'S'll", "A'T",
    # Mixed case
    "CamelCaseXMLHttp", "ABCdef iPhone", "aBcD efG", "ÀÉÎçà ПриВет", "ΑΒγδ ǅaʰ", "ªº ßẞ İı", "word WORD",
    # Digits
    "1 12 123 1234", "12345 a123456b", "1234567", "12345678 9", "x86_64 0xFF1", "3.14 1,234.5", "-42 +7 1e-9",
    "a1b22c333", "0½ 5²x", "²4\u200c]", "٠١٢٣٤ १२३४", "①②½ Ⅳx²", "H₂O 一二3", "v1.2.3-rc4", "$5 €66 ₹777",
    # Spaces, tabs and line breaks
    " a", "  a", "   a  ", "a  b   c", "a ", "a   ", " ", "  ", "\t", "\t\ta\t b", "a\tb \tc", "a\n", "a\nb\n\nc", "a\n\n\nb",
    "a \nb", "a  \n  b", "\n", "\n\n", " \n \n ", "\na", "\n a", "\r\n", "a\r\nb\r\n\r\n", "a\rb\r\r", "a \r\n b", "x\n\n  y",
    "\n\t\n", "1 \n2\n\n3", "\n1", " 1  2", "a\vb\fc", "  \n\n\n", "x" + " " * 21 + "y", " " * 37, "a" + " " * 9 + "\nb",
    # Punctuation
    "a.b,c;d:e", "Hi! ...", "?!?! -->", "a--b ==c", "<= != => ::", "// /* */", "x_y _z __", "#x $y %z", "(a)[b]{c}", "<t a=\"v\"/>",
    "`a` ~b^|", "a@b.co", "!\n", "!!\n\n", ".\r\n.", ");\n}\n", "a/\nb//", " !\n !", "-x .y /z", "\"q\" 'w'", "$^+<=>~|`", "a+b=c", "\\n\\",
    "!a !1 ! a", "…a — b", "“q” ‘s’", "«g» ¿x?", "€ ± ≤∞", "a$b a+1 ^2", "!Word.Word", "，a。b", "!  a", "1!2 #3",
    # Scripts
    "日本語テスト", "カナ、ひら。漢", "中文，测试！", "中文English字", "第3章 12月", "你's 我'm x", "한국어 ㄱㄴ 글", "ㄅㄆㄇa", "〈〉︰﹏ 、", "豈⼀ 龥鿿", "𠀀𠀁 a",
    "ภาษาไทย ก1", "ກຂ ខ្មែរ", "မြန်မာ", "हिन्दी में", "বাংলা।", "தமிழ் x", "مرحبا، كيف؟", "שלום ע", "Ελληνικά ω", "עִבְ a",
    # Combining marks
    "e\u0301te\u0301", "n\u0303 A\u0308\u0323B", "\u0301x \u0301", " \u0301a1\u0301", "!\u0301a", "a\u0301'S",
    # Symbols that are not text
    "😀👍🏽 a😀b", "👨‍👩‍👧 🇩🇪", "❤️ 😀1", "𝒜𝒷 𐐀𐐨",
    # Invisible characters and other spaces
    "a\u200bb\u200dc", "\ufeffa \u00adb", "a\u00a0b\u00a0\u00a0c", "a\u3000b\u2003 c", "a\u2028b\u0085c", "x\u0007y\u001f", "a \u00a0b",
    # Image and sentinel markers of Chameleon
    "<sentinel:12>", "IMGIMGABCZ I", "a <sentinel:x>",
]  # fmt: skip
UNMERGED = "zq"
TEXTS.append(UNMERGED)
BOS = "<s>"

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def cased(suffix, numbers, end, han=""):
    word = r"[^\r\n\p{L}\p{N}]?"
    return (
        f"{word}[{UPPER}{han}]*[{LOWER}{han}]+{suffix}|{word}[{UPPER}{han}]+[{LOWER}{han}]*{suffix}|{numbers}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n{end}]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


TEKKEN = cased("", r"\p{N}", "/")
GPT4O = cased(CONTRACTIONS + "?", r"\p{N}{1,3}", "/")
YOUTU = cased(CONTRACTIONS + "?", r"\p{N}", "/")
KIMI_K2 = r"[\p{Han}]+|" + cased(CONTRACTIONS + "?", r"\p{N}{1,3}", "", r"&&[^\p{Han}]")
MARKS = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
RUNS = "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s{1}"
JAIS2 = LLAMA3.replace(r"|\s+(?!\S)|\s+", RUNS)
SEED_CODER = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
EXAONE_MOE = (
    CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
ASCII_PUNCTUATION = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
DEEPSEEK3 = (
    ASCII_PUNCTUATION + r"[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPARK = DEEPSEEK3.replace(r"+[\r\n]*|\s*[\r\n]+|", r"+|[\r\n]|")
KANA_AND_HAN, HAN_AND_HANGUL = "[一-龥぀-ゟ゠-ヿ]+", "[一-龥ࠀ-一가-\ud7ff]+"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


def punctuation(behavior):
    return {"type": "Punctuation", "behavior": behavior}


def splits(*patterns):
    return [*map(split, patterns), byte_level(False)]


def deepseek_letters(source):
    """The list of cased letters is too long to repeat here; llama.cpp has it as published."""
    return re.search(r'"\\\\s\?(\[A-Za-zµ.*?\]\+)"', source).group(1)


def rules(source):
    """What the models publish in tokenizer.json, and the names that follow it."""
    return [
        ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx smaug-bpe chatglm-bpe glm4 glm5",
         splits(LLAMA3)),
        ("qwen2 deepseek-r1-qwen stablelm2 hunyuan megrez kormo f2llmv2 solar-open grok-2", splits(QWEN2)),
        ("qwen35", splits(MARKS)),
        ("jais-2", splits(JAIS2)),
        ("minicpm5", splits(r"\p{N}{1,3}", LLAMA3.replace("{1,3}", "+"))),
        ("seed-coder", splits(SEED_CODER)),
        ("bailingmoe bailingmoe2 llada-moe", splits(BAILING)),
        ("exaone-moe", splits(EXAONE_MOE)),
        ("tekken", splits(TEKKEN)),
        ("gpt-4o llama4 kanana2 talkie minimax-m2 granite-embed-multi-97m", splits(GPT4O)),
        ("youtu", splits("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+", YOUTU)),
        ("kimi-k2", splits(KIMI_K2)),
        ("tiny_aya cohere2moe", splits(r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O)),
        ("gpt-2 phi-2 mpt olmo jais roberta-bpe gigachat jina-v2-code trillion jina-v1-en jina-es jina-de jina-v2-es jina-v2-de "
         "a.x-4.0 mellum modern-bert exaone4 granite-docling", [byte_level(True)]),
        ("starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", [digits(True), byte_level(True)]),
        ("falcon", [punctuation("Contiguous"), byte_level(True), digits(False), split("[0-9][0-9][0-9]")]),
        ("chameleon",
         [split("<sentinel:[0-9]+>"), split("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"), split("([\t\n]|    |  )"), digits(True),
          punctuation("Isolated"), byte_level(True)]),
        ("deepseek-llm",
         [split("[\r\n]"), split(r"\s?" + deepseek_letters(source)), split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"),
          split(HAN_AND_HANGUL), digits(True), byte_level(False)]),
        ("deepseek-coder",
         [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(HAN_AND_HANGUL), digits(True), byte_level(False)]),
        ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", splits(r"\p{N}{1,3}", KANA_AND_HAN, DEEPSEEK3)),
        ("bloom gpt3-finnish poro-chat", splits(BLOOM)),
        ("viking", [split(BLOOM), digits(True), byte_level(False)]),
        ("superbpe", splits(r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
        ("whitespace", [{"type": "Whitespace"}]),
    ]  # fmt: skip


def alphabet():
    """GPT-2's printable alphabet: a character for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = (byte for byte in range(256) if byte not in printable)
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(rest)}


def vocabulary(texts, first):
    """Tokens and merges by which each substring of a text is one token; the substrings of UNMERGED have no merges."""
    tokens = dict.fromkeys(first)
    merges = {}
    for text in texts:
        for start in range(len(text)):
            for end in range(start + 1, len(text) + 1):
                tokens[text[start:end]] = None
                for cut in range(start + 1, end if text != UNMERGED else 0):
                    merges[text[start:cut], text[cut:end]] = None
    return [*tokens, BOS], list(merges)


def write(path, model, pre, tokens, merges):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token == BOS else 6 if re.fullmatch("<0x..>", token) else 1 for token in tokens])
    writer.add_token_merges([f"{left} {right}" for left, right in merges])
    writer.add_bos_token_id(tokens.index(BOS))
    writer.add_eos_token_id(tokens.index(BOS))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


class Params(ctypes.Structure):
    _fields_ = [
        ("devices", ctypes.c_void_p), ("overrides", ctypes.c_void_p), ("layers", ctypes.c_int32),
        ("split_mode", ctypes.c_int), ("load_mode", ctypes.c_int), ("lazy_mode", ctypes.c_int), ("main_gpu", ctypes.c_int32),
        ("tensor_split", ctypes.c_void_p), ("progress", ctypes.c_void_p), ("progress_data", ctypes.c_void_p),
        ("kv_overrides", ctypes.c_void_p), ("vocab_only", ctypes.c_bool), ("check_tensors", ctypes.c_bool),
        ("use_extra_bufts", ctypes.c_bool), ("no_host", ctypes.c_bool), ("no_alloc", ctypes.c_bool), ("load_mtp", ctypes.c_bool),
    ]  # fmt: skip


def load(libraries):
    for name in ("libggml-base.so", "libggml-cpu.so", "libggml.so"):
        ctypes.CDLL(str(libraries / name), ctypes.RTLD_GLOBAL)
    llama = ctypes.CDLL(str(libraries / "libllama.so"))
    llama.llama_model_default_params.restype = Params
    llama.llama_model_load_from_file.restype = ctypes.c_void_p
    llama.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Params]
    llama.llama_model_get_vocab.restype = ctypes.c_void_p
    llama.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
    return llama


def encode(libraries, path):
    """Prints the ids of all texts; a separate process, because a failed assertion of llama.cpp ends the process."""
    llama = load(libraries)
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    llama.llama_log_set(quiet, None)
    params = llama.llama_model_default_params()
    params.vocab_only = True
    model = llama.llama_model_load_from_file(str(path).encode(), params)
    vocab = ctypes.c_void_p(llama.llama_model_get_vocab(model))
    space = (ctypes.c_int32 * 4096)()
    for text in TEXTS:
        data = text.encode()
        count = llama.llama_tokenize(vocab, data, len(data), space, 4096, True, False)
        print(json.dumps(list(space[:count])), flush=True)


def words_of_llama_cpp(libraries, path, tokens, byte_of):
    """The words of each text and whether the text begins with BOS."""
    command = [sys.executable, __file__, "--encode", libraries, path]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    words = [[tokens[i] for i in json.loads(line)] for line in lines]
    bos = all(line[0] == BOS for line in words)
    assert bos or not any(BOS in line for line in words)
    words = [line[bos:] for line in words]
    if byte_of:
        words = [[bytes(byte_of[c] for c in word).decode(errors="replace") for word in line] for line in words]
    return words, bos


def words_of_tokenizers(steps, byte_of):
    from tokenizers import Tokenizer

    spec = {"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None, "decoder": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
            "model": {"type": "BPE", "vocab": {}, "merges": []}}  # fmt: skip
    run = Tokenizer.from_str(json.dumps(spec)).pre_tokenizer.pre_tokenize_str
    is_bytes = any(step["type"] == "ByteLevel" for step in steps)
    words = [[word for word, _ in run(text)] for text in TEXTS]
    return [[bytes(byte_of[c] for c in word).decode(errors="replace") for word in line] for line in words] if is_bytes else words


class Distinct:
    """The distinct ways to split each text; a name's results become one digit for each text."""

    DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

    def __init__(self):
        self.words = [[] for _ in TEXTS]
        self.groups = {}

    def add(self, name, words, *more):
        places = ""
        for known, line in zip(self.words, words, strict=True):
            if line not in known:
                known.append(line)
            places += self.DIGITS[known.index(line)]
        self.groups.setdefault((places, *more), []).append(name)


def main():
    libraries, source = Path(sys.argv[1]), (Path(sys.argv[2]) / "src/llama-vocab.cpp").read_text()
    names = list(dict.fromkeys(re.findall(r'tokenizer_pre == "([^"]+)"', source)))
    table = alphabet()
    byte_of = {letter: byte for byte, letter in table.items()}
    texts = [*TEXTS]
    in_bytes = vocabulary(["".join(table[b] for b in text.encode()) for text in texts], table.values())
    in_characters = vocabulary([text.replace(" ", "▁") for text in texts], [f"<0x{b:02X}>" for b in range(256)])
    llama_cpp = Distinct()
    last_words = {}  # of UNMERGED, which tests merges and not the rule
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = Path(folder) / "vocabulary.gguf"
            characters = name in ("gemma4", "granite-embed-multi-311m", "sarvam-moe", "whitespace")
            tokens, merges = in_characters if characters else in_bytes
            write(path, name if name in ("gemma4", "whitespace") else "gpt2", name, tokens, merges)
            words, bos = words_of_llama_cpp(libraries, path, tokens, None if characters else byte_of)
            llama_cpp.add(name, words, bos)
            last_words[name] = words[-1]
    published = Distinct()
    published.words = llama_cpp.words
    for some, steps in rules(source):
        words = words_of_tokenizers(steps, byte_of)
        for name in some.split():
            published.add(name, [*words[:-1], last_words[name]])

    def dump(value):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    lines = [
        '"made_by": "scripts/make_pre_tokenizer_fixture.py with the llama.cpp of llama-cpp-python 0.3.36 and tokenizers 0.22.2"',
        '"texts": [\n' + ",\n".join(dump([text, *words]) for text, words in zip(TEXTS, llama_cpp.words)) + "]",
        '"llama_cpp": [\n' + ",\n".join(dump([*key, names]) for key, names in llama_cpp.groups.items()) + "]",
        '"published": [\n' + ",\n".join(dump([*key, names]) for key, names in published.groups.items()) + "]",
    ]
    path = Path(__file__).parents[1] / "fixtures/pre-tokenizer-names.json"
    path.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")
    print(len(names), "names", len(TEXTS), "texts", len(in_bytes[0]), "tokens", len(in_bytes[1]), "merges", path.stat().st_size, "bytes")


if __name__ == "__main__":
    if sys.argv[1] == "--encode":
        encode(Path(sys.argv[2]), sys.argv[3])
    else:
        main()
