"""Texts of the fixtures: what the small tokenizers learn from, the prompts, and the texts that are hard to tokenize.

Everything here was written for this purpose or is put together by `corpus` from a seeded grammar.
"""
import random

NAMES = ["Ada", "Bram", "Chidi", "Dunja", "Emre", "Farah", "Goran", "Hana", "Ivo", "Jun"]
PLACES = ["the harbour", "a quiet mill", "the old bridge", "the market hall", "a glass house", "the upper valley"]
THINGS = ["a copper kettle", "three lanterns", "the long ladder", "an empty barrel", "two grey stones", "a folded map"]
VERBS = ["carried", "painted", "counted", "measured", "repaired", "followed", "remembered", "weighed"]
ENDINGS = ["before the rain came.", "and nobody asked why.", "while the others slept.", "as they'd agreed.",
           "because it wasn't theirs.", "and we'll see it again!", "though it's late, isn't it?"]

OTHER_LINES = [
    "Der Müller fährt über die große Brücke, weil es schon spät ist.",
    "Le garçon a mangé une crème brûlée près de la forêt.",
    "El niño pequeño corrió hacia la montaña mañana por la mañana.",
    "Мы шли по дороге, и никто не знал, где конец пути.",
    "河边的老人说今天的水很清，明天会下雨。",
    "今日は橋の上で魚を見ました。とても静かでした。",
    "오늘은 다리 위에서 물고기를 보았습니다.",
    "def weigh(stones):\n    total = 0\n    for stone in stones:\n        total += stone.mass\n    return total\n",
    "for (int i = 0; i < 100; i++) { sum += table[i] * 3; }\n",
    "{\"name\": \"kettle\", \"count\": 12, \"price\": 4.50}\n",
    "In 1987 there were 2345 boats; in 2024 only 31 were left, 1 of 75.",
]

PROMPTS = [
    "The old bridge wasn't far, and Hana carried three lanterns before 10:45.",
    "In 1987 the über-große kettle",
]

CHAT = [
    {"role": "system", "content": "You answer in one short sentence."},
    {"role": "user", "content": "How many lanterns did Hana carry? "},
    {"role": "assistant", "content": "She carried three lanterns."},
    {"role": "user", "content": "And where to?\nTell me, it's late!"},
]


def corpus(seed=7, count=1500):
    """Lines for training a tokenizer: mostly English sentences of a small grammar, some of other languages and code."""
    rng = random.Random(seed)
    lines = []
    for i in range(count):
        name, other = rng.sample(NAMES, 2)
        lines.append(f"{name} {rng.choice(VERBS)} {rng.choice(THINGS)} near {rng.choice(PLACES)} {rng.choice(ENDINGS)}")
        if i % 3 == 0:
            lines.append(f"{other} said: \"{rng.choice(THINGS).capitalize()} cost {rng.randrange(2, 3000)} coins.\"")
        if i % 5 == 0:
            lines.append(OTHER_LINES[(i // 5) % len(OTHER_LINES)])
    return lines


def hard_texts(added):
    """Texts that separate tokenizers; `added` are the model's added and special tokens, by text."""
    texts = [
        "",
        " ",
        "   ",
        "Hello world",
        " leading and trailing ",
        "two  spaces   three    four     five",
        "tabs\tand\t\tmore\n\nnew lines\r\nand \n spaces \n",
        "    def f(x):\n\t\treturn x  # comment\n\n\n",
        "1 12 123 1234 12345 123456 1234567 3.14159 1,000,000",
        "2024-11-05T07:30:00Z v1.2.3-rc4 0xDEADBEEF 1e-9",
        "I'll we'RE they'Ve he'S I'M can'T she'd 'tis don''t",
        "HELLO Hello hELLO camelCaseText snake_case_text",
        "Über große Füße, crème brûlée, mañana",
        "combining: e\u0301 a\u0308 n\u0303 o\u0302\u0323 \u1e69 s\u0323\u0307",
        "\u4eca\u65e5\u306f\u6a4b\u306e\u4e0a\u3067\u9b5a\u3092\u898b\u307e\u3057\u305f\u3002 \u6cb3\u8fb9\u7684\u8001\u4eba\u8bf4 \uc624\ub298\uc740",
        "\u041c\u044b \u0448\u043b\u0438 \u0437\u0430\u0432\u0442\u0440\u0430, \u03ba\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u0928\u092e\u0938\u094d\u0924\u0947",
        "emoji \U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea \u2764\ufe0f",
        "mixed\u6587\u5b57and\u0431\u0443\u043a\u0432\u044b123\u0663\u0664\u00bd\u00b2",
        "control \u0001\u0002 \u007f \u0085 \u00a0nbsp \u200bzero \u3000wide \u2028line",
        "punct!!! ??? ... --- *** ((())) [[]] {{}} <<>> $$$ ~~~ \\\\ // ::",
        "quotes \u201cdouble\u201d \u2018single\u2019 it\u2019s \u2014 dash \u2026",
        "\u2581under\u2581block and _low_ line",
        "<unk> <s> </s> <0x41> <|endoftext|> <|im_start|> [INST]",
        "\n",
        "\n\n  \n",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "the lighthouse keeper's lighthouse",
    ]
    for token in added:
        texts.append(f"a {token} b{token}c  {token}\n{token}{token} ")
    return texts
