"""Small tokenizers for the fixtures, trained on `fixture_texts.corpus` and written as real models write them.

Every builder writes tokenizer.json and/or tokenizer.model, tokenizer_config.json and special_tokens_map.json into a
folder and returns the number of tokens. Kinds: sentencepiece BPE with byte fallback (`sentencepiece_*`) and byte-level
BPE (`byte_level`).
"""
import io
import json
import os

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from fixture_texts import corpus

LLAMA3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8", newline="\n") as file:
        json.dump(value, file, ensure_ascii=False, indent=1)
        file.write("\n")


def added(content, special=True, lstrip=False, rstrip=False, normalized=False):
    """An entry of `added_tokens`, without its id."""
    return dict(content=content, single_word=False, lstrip=lstrip, rstrip=rstrip, normalized=normalized, special=special)


def write_config(folder, tokens, options):
    """tokenizer_config.json and special_tokens_map.json; `tokens` maps ids to added-token entries."""
    config = {"added_tokens_decoder": {str(i): t for i, t in tokens.items()}, "clean_up_tokenization_spaces": False,
              "model_max_length": 512, **options}
    write_json(folder, "tokenizer_config.json", config)
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    write_json(folder, "special_tokens_map.json", {k: options[k] for k in names if options.get(k)})


# ---------------------------------------------------------------- sentencepiece

def train_sentencepiece(size, seed, symbols=()):
    """The bytes of a tokenizer.model: BPE, byte fallback, digits split, no normalisation; symbols are pieces that are found whole."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus(seed)), model_writer=model, vocab_size=size, model_type="bpe", byte_fallback=True,
        split_digits=True, normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.985,
        allow_whitespace_only_pieces=True, num_threads=1, minloglevel=2, user_defined_symbols=list(symbols))
    return model.getvalue()


def merges_of(pieces):
    """Every way to put a piece together from two others, better pieces (lower ids) first."""
    ids = {p: i for i, p in enumerate(pieces)}
    merges = []
    for piece in pieces[259:]:
        cuts = [(piece[:j], piece[j:]) for j in range(1, len(piece)) if piece[:j] in ids and piece[j:] in ids]
        merges += sorted(cuts, key=lambda c: (ids[c[0]], ids[c[1]]))
    return [list(m) for m in merges]


def bos_template():
    bos, text = {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    second = [{"SpecialToken": {"id": "<s>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": [bos, text], "pair": [bos, text] + second,
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}


class IceText:
    """ChatGLM-6B's tokenizer by the sentencepiece library: white space becomes symbols before the pieces, ids of images stand before the first piece, and two
    tokens behind every text. Tokens that steer the model are cut out of a text first, as the transformers library does it for all tokenizers."""

    SPECIAL = ("[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>")
    WHITE = [("<n>", "\n"), ("<|tab|>", "\t")] + [(f"<|blank_{count}|>", " " * count) for count in range(80, 1, -1)]
    clean_up_tokenization_spaces, chat_template = False, None

    def __init__(self, model, images):
        self.processor, self.images = sentencepiece.SentencePieceProcessor(model_proto=model), images
        self.ids = {text: images + self.processor.piece_to_id(text) for text in self.SPECIAL}

    def __len__(self):
        return self.images + self.processor.get_piece_size()

    def get_added_vocab(self):
        return self.ids

    def encode(self, text, add_special_tokens=True):
        for symbol, white in self.WHITE:
            text = text.replace(white, symbol)
        ids = [self.images + piece for piece in self.processor.encode(text)]
        return ids + ([self.ids["[gMASK]"], self.ids["<sop>"]] if add_special_tokens else [])

    def decode(self, ids, skip_special_tokens=False, clean_up_tokenization_spaces=False):
        kept = [i - self.images for i in ids if not (skip_special_tokens and i in self.ids.values())]
        text = self.processor.decode(kept)
        for symbol, white in self.WHITE:
            text = text.replace(symbol, white)
        return text


def sentencepiece_json(model, extra, metaspace):
    """The tokenizer.json of a sentencepiece model: the older form prepends by a normalizer and writes a
    merge as one string, the newer by a pre-tokenizer and as a pair."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    tokens = {i: added(pieces[i]) for i in range(3)}
    tokens.update({len(pieces) + i: t for i, t in enumerate(extra)})
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    prepend = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, replace]}
    first = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    value = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [dict(id=i, **t) for i, t in tokens.items()],
        "normalizer": None if metaspace else prepend,
        "pre_tokenizer": first if metaspace else None,
        "post_processor": bos_template(),
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": {p: i for i, p in enumerate(pieces)},
                  "merges": merges_of(pieces) if metaspace else [" ".join(m) for m in merges_of(pieces)]},
    }
    return value, tokens


def sentencepiece_tokenizer(folder, size, seed, extra=(), files=("json", "model"), metaspace=False, options=None):
    """A sentencepiece tokenizer in the given file forms; returns (tokens, tokenizer.json's value)."""
    model = train_sentencepiece(size, seed)
    value, tokens = sentencepiece_json(model, list(extra), metaspace)
    if "model" in files:
        with open(os.path.join(folder, "tokenizer.model"), "wb") as file:
            file.write(model)
        if extra:
            write_json(folder, "added_tokens.json", {t["content"]: size + i for i, t in enumerate(extra)})
    if "json" in files:
        write_json(folder, "tokenizer.json", value)
    write_config(folder, tokens, {
        "tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False, "bos_token": "<s>",
        "eos_token": "</s>", "unk_token": "<unk>", "pad_token": None, "legacy": not metaspace, "sp_model_kwargs": {},
        **(options or {})})
    return size + len(extra), value


# ---------------------------------------------------------------- byte-level BPE

def bytes_of(token):
    """The bytes of a token that is written in GPT-2's printable characters."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    other = [b for b in range(256) if b not in plain]
    table = {chr(b): b for b in plain} | {chr(256 + place): b for place, b in enumerate(other)}
    return bytes(table[character] for character in token)


def pre_tokenizer(kind):
    if kind == "gpt2-digits":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    if kind == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    split = {"llama3": LLAMA3_SPLIT, "qwen2": QWEN2_SPLIT}[kind]
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), behavior="isolated", invert=False),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)])


def train_byte_level(kind, size, seed, words):
    """A trained BPE with `words` put into the vocabulary without a merge that makes them."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizer(kind)
    trainer = trainers.BpeTrainer(vocab_size=size - len(words), show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    trained.train_from_iterator(corpus(seed), trainer)
    state = json.loads(trained.to_str())["model"]
    vocab = dict(state["vocab"])
    for word in words:
        vocab[word] = len(vocab)
    merges = [tuple(m) for m in state["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=bool(words)))
    tokenizer.pre_tokenizer = pre_tokenizer(kind)
    if kind == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=True, trim_offsets=True, use_regex=True)
    return tokenizer


def byte_level(folder, kind, size, seed, extra, options, bos=None, words=()):
    """A byte-level tokenizer.json; `extra` are the added tokens in the order of their ids; returns the number of tokens."""
    tokenizer = train_byte_level(kind, size, seed, list(words))
    for t in extra:
        entry = AddedToken(**{k: v for k, v in t.items() if k != "special"}, special=t["special"])
        (tokenizer.add_special_tokens if t["special"] else tokenizer.add_tokens)([entry])
    level = processors.ByteLevel(trim_offsets=False)
    if bos:
        template = processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1",
                                                 special_tokens=[(bos, tokenizer.token_to_id(bos))])
        tokenizer.post_processor = processors.Sequence([level, template])
    else:
        tokenizer.post_processor = level
    write_json(folder, "tokenizer.json", json.loads(tokenizer.to_str()))
    write_config(folder, {tokenizer.token_to_id(t["content"]): t for t in extra}, options)
    return tokenizer.get_vocab_size()
