"""What each fixture model is: its configuration, its tokenizer, its chat template.

`MODELS` is the list; a new fixture is one more entry. Weights and goldens are made by make_fixtures.py.
"""
import base64
import json
import os

from fixture_tokenizers import IceText, added, byte_level, bytes_of, sentencepiece_tokenizer, train_sentencepiece, write_json

LLAMA3_TEMPLATE = (
    "{{- bos_token }}\n"
    "{%- for message in messages %}\n"
    "    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n"
    "{%- endif %}\n")

QWEN2_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")

QWEN3_TEMPLATE = """\
{%- set state = namespace(last_user=0) %}
{%- for message in messages[::-1] %}
    {%- if message.role == "user" and state.last_user == 0 %}
        {%- set state.last_user = messages|length - 1 - loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "assistant" and '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

MISTRAL_TEMPLATE = (
    "{%- if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + '\\n\\n' %}"
    "{% set turns = messages[1:] %}{% else %}{% set system = '' %}{% set turns = messages %}{% endif -%}"
    "{{ bos_token }}"
    "{% for message in turns %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('user and assistant must take turns') }}{% endif %}"
    "{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + (system if loop.first else '') + message['content'] + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}"
    "{% endfor %}")

LLAMA3_ADDED = [added("<|begin_of_text|>"), added("<|end_of_text|>"), added("<|start_header_id|>"),
                added("<|end_header_id|>"), added("<|eot_id|>"), added("<note>", special=False, normalized=True)]
QWEN2_ADDED = [added("<|endoftext|>"), added("<|im_start|>"), added("<|im_end|>"), added("<tool_call>", special=False)]


# ---------------------------------------------------------------- tokenizers

def llama2_tokenizer(folder):
    """Both files; two tokens were added on top of the sentencepiece model, as enlarged vocabularies have them."""
    extra = [added("<pad>"), added("<note>", special=False, normalized=False)]
    return sentencepiece_tokenizer(folder, 416, 7, extra, options={"pad_token": "<pad>"})


def tokenizer_model_only(folder):
    return sentencepiece_tokenizer(folder, 384, 8, files=("model",))


def baichuan_tokenizer(folder):
    """As Baichuan's: the sentencepiece model alone, and no token before a text."""
    return sentencepiece_tokenizer(folder, 384, 13, files=("model",), options={"add_bos_token": False})


def internlm_tokenizer(folder):
    return sentencepiece_tokenizer(folder, 392, 14, files=("model",))


def xverse_tokenizer(folder):
    return sentencepiece_tokenizer(folder, 392, 21, files=("json",))


def chatglm_tokenizer(folder):
    """As ChatGLM2's: the sentencepiece model alone; five tokens that its program puts behind the pieces, two of them before every text."""
    size, behind = 384, [added(text) for text in ("[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>")]
    count, value = sentencepiece_tokenizer(folder, size, 15, behind, files=("model",))
    for name in ("added_tokens.json", "special_tokens_map.json"):
        os.remove(os.path.join(folder, name))
    write_json(folder, "tokenizer_config.json", {"do_lower_case": False, "remove_space": False, "tokenizer_class": "ChatGLMTokenizer"})
    return count, two_before(value, {"[gMASK]": size + 1, "<sop>": size + 3})


CHATGLM3_BEHIND = ["[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]
GLM4_BEHIND = ["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>",
               "<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>"]
# As published with ChatGLM3 and GLM-4, without tools.
CHATGLM3_TEMPLATE = (
    "{% for message in messages %}{% if loop.first %}[gMASK]sop{% endif %}<|{{ message['role'] }}|>\n {{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}")
GLM4_TEMPLATE = (
    "[gMASK]<sop>{% for item in messages %}{% if item['content'] %}<|{{ item['role'] }}|>{{ item['metadata'] }}\n{{ item['content'] }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}")


def two_before(value, ids):
    """Puts the two tokens of ChatGLM before every text, in tokenizer.json's words."""
    before = [{"SpecialToken": {"id": text, "type_id": 0}} for text in ids]
    words = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    tokens = {text: {"id": text, "ids": [place], "tokens": [text]} for text, place in ids.items()}
    value["post_processor"] = {"type": "TemplateProcessing", "single": before + words[:1], "pair": before + words, "special_tokens": tokens}
    return value


def chatglm3_tokenizer(folder):
    """As ChatGLM3's: the tokens behind the pieces are listed, by the names that its program has for them."""
    size, behind = 384, [added(text) for text in CHATGLM3_BEHIND]
    count, value = sentencepiece_tokenizer(folder, size, 19, behind, files=("model",))
    for name in ("added_tokens.json", "special_tokens_map.json"):
        os.remove(os.path.join(folder, name))
    write_json(folder, "tokenizer_config.json", {
        "added_tokens_decoder": {str(size + place): token for place, token in enumerate(behind)}, "chat_template": CHATGLM3_TEMPLATE,
        "do_lower_case": False, "remove_space": False, "tokenizer_class": "ChatGLMTokenizer"})
    return count, two_before(value, {"[gMASK]": size + 1, "sop": size + 3})


def glm4_tokenizer(folder):
    """As GLM-4's: bytes in base64 with ranks in a file that has sentencepiece's name; the tokens behind them are listed."""
    behind = [added(text) for text in GLM4_BEHIND]
    size = byte_level(folder, "llama3", 384, 20, behind, {})
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
        value = json.load(file)
    first = size - len(behind)
    write_ranks(os.path.join(folder, "tokenizer.model"), value, GLM4_BEHIND)
    for name in ("tokenizer.json", "special_tokens_map.json"):
        os.remove(os.path.join(folder, name))
    write_json(folder, "tokenizer_config.json", {
        "added_tokens_decoder": {str(first + place): token for place, token in enumerate(behind)}, "chat_template": GLM4_TEMPLATE,
        "additional_special_tokens": GLM4_BEHIND, "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "padding_side": "left",
        "remove_space": False, "tokenizer_class": "ChatGLM4Tokenizer"})
    return size, two_before(value, {"[gMASK]": first + 2, "<sop>": first + 4})


def chatglm1_tokenizer(folder):
    """Like the first published version of ChatGLM-6B: symbols for white space, and image ids before the first piece."""
    images = 8
    symbols = [symbol for symbol, _ in IceText.WHITE] + list(IceText.SPECIAL)
    model = train_sentencepiece(464, 17, symbols)
    with open(os.path.join(folder, "ice_text.model"), "wb") as file:
        file.write(model)
    write_json(folder, "tokenizer_config.json", {
        "name_or_path": "THUDM/chatglm-6b", "bos_token": "<sop>", "eos_token": "<eop>", "end_token": "</s>", "gmask_token": "[gMASK]",
        "mask_token": "[MASK]", "unk_token": "<unk>", "remove_space": False, "do_lower_case": False,
        "tokenizer_class": "ChatGLMTokenizer", "num_image_tokens": images})
    tokenizer = IceText(model, images)
    return len(tokenizer), tokenizer


def chatglm1_prompt(messages):
    """As the program of ChatGLM-6B puts rounds together: a first question stands alone."""
    if len(messages) == 1:
        return messages[0]["content"] + "[gMASK]<sop>"
    rounds, text = 0, ""
    for message in messages:
        if message["role"] == "user":
            text += "[Round {}]\n问：{}\n答：".format(rounds, message["content"])
            rounds += 1
        else:
            text += message["content"] + "\n"
    return text + "[gMASK]<sop>"


chatglm1_prompt.roles = ("user", "assistant")


def chatglm2_prompt(messages):
    """As the program of ChatGLM2 puts rounds together; it knows no system."""
    rounds, text = 0, "[gMASK]<sop>"
    for message in messages:
        if message["role"] == "user":
            rounds += 1
            text += "[Round {}]\n\n问：{}\n\n答：".format(rounds, message["content"])
        else:
            text += message["content"] + "\n\n"
    return text


chatglm2_prompt.roles = ("user", "assistant")


def qwen_prompt(messages):
    """As the program of Qwen's chat models puts them together."""
    return "\n".join("<|im_start|>{}\n{}<|im_end|>".format(m["role"], m["content"]) for m in messages) + "\n<|im_start|>assistant\n"


qwen_prompt.roles = ("system", "user", "assistant")


def write_ranks(path, value, behind):
    """The vocabulary of a tokenizer.json as a file of ranks, without the tokens behind them."""
    ranks = {token: rank for token, rank in value["model"]["vocab"].items() if token not in behind}
    with open(path, "wb") as file:
        for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
            file.write(base64.b64encode(bytes_of(token)) + b" %d\n" % rank)


def qwen_tokenizer(folder):
    """As the first Qwen's: bytes in base64 with ranks; the tokens behind them stand in its program only."""
    texts = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [f"<|extra_{number}|>" for number in range(205)]
    size = byte_level(folder, "qwen2", 380, 16, [added(text) for text in texts], {})
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
        value = json.load(file)
    write_ranks(os.path.join(folder, "qwen.tiktoken"), value, texts)
    for name in ("tokenizer.json", "special_tokens_map.json"):
        os.remove(os.path.join(folder, name))
    write_json(folder, "tokenizer_config.json", {"model_max_length": 256, "tokenizer_class": "QWenTokenizer"})
    return size, value


def moss_tokenizer(folder):
    """As MOSS's: the vocabulary and its merges in two files, added tokens in a third."""
    texts = ["<|endoftext|>", "<eom>", "<eoh>"]
    size = byte_level(folder, "gpt2", 380, 18, [added(text) for text in texts], {})
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
        value = json.load(file)
    ids = {t["content"]: t["id"] for t in value["added_tokens"]}
    write_json(folder, "vocab.json", dict(value["model"]["vocab"], **{texts[0]: ids[texts[0]]}))
    with open(os.path.join(folder, "merges.txt"), "w", encoding="utf-8", newline="\n") as file:
        file.write("#version: 0.2\n")
        file.writelines(" ".join(merge) + "\n" for merge in value["model"]["merges"])
    write_json(folder, "added_tokens.json", {text: ids[text] for text in texts[1:]})
    os.remove(os.path.join(folder, "tokenizer.json"))
    names = {key: "<|endoftext|>" for key in ("bos_token", "eos_token", "unk_token")}
    write_json(folder, "special_tokens_map.json", dict(names, additional_special_tokens=texts[1:]))
    write_json(folder, "tokenizer_config.json", {"add_prefix_space": False, "model_max_length": 256, "tokenizer_class": "MossTokenizer", **names})
    return size, value


def mistral_tokenizer(folder):
    extra = [added("[INST]"), added("[/INST]"), added("<mark>", special=False, lstrip=True, rstrip=True)]
    return sentencepiece_tokenizer(folder, 400, 9, extra, ("json",), metaspace=True, options={"chat_template": MISTRAL_TEMPLATE})


def llama3_tokenizer(folder, eos="<|end_of_text|>"):
    options = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin_of_text|>", "eos_token": eos,
               "chat_template": LLAMA3_TEMPLATE, "model_input_names": ["input_ids", "attention_mask"]}
    words = ["\u0120lighthouse"]
    return byte_level(folder, "llama3", 395, 7, LLAMA3_ADDED, options, bos="<|begin_of_text|>", words=words), None


def llama3_tied_tokenizer(folder):
    return llama3_tokenizer(folder, eos="<|eot_id|>")


def digits_tokenizer(folder):
    options = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>",
               "unk_token": "<|endoftext|>", "add_prefix_space": False}
    return byte_level(folder, "gpt2-digits", 380, 10, [added("<|endoftext|>"), added("<fim_prefix>")], options), None


def qwen2_tokenizer(folder):
    options = {"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": False, "add_prefix_space": False, "bos_token": None,
               "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None, "errors": "replace",
               "split_special_tokens": False, "chat_template": QWEN2_TEMPLATE}
    return byte_level(folder, "qwen2", 390, 11, QWEN2_ADDED, options), None


def qwen3_tokenizer(folder):
    """The template stands in a file of its own; one added token swallows the white space around it."""
    with open(f"{folder}/chat_template.jinja", "w", encoding="utf-8", newline="\n") as file:
        file.write(QWEN3_TEMPLATE)
    options = {"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": False, "add_prefix_space": False, "bos_token": None,
               "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None, "errors": "replace",
               "split_special_tokens": False}
    extra = QWEN2_ADDED + [added("<think>", special=False), added("</think>", special=False),
                           added("<gap>", special=True, lstrip=True, rstrip=True)]
    return byte_level(folder, "qwen2", 384, 12, extra, options), None


# ---------------------------------------------------------------- configurations

SMALL = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
LATENT = dict(SMALL, num_key_value_heads=4, kv_lora_rank=32, qk_nope_head_dim=32, qk_rope_head_dim=32, v_head_dim=32, first_k_dense_replace=1,
              n_routed_experts=8, moe_intermediate_size=32)
SENTENCEPIECE_IDS = dict(bos_token_id=1, eos_token_id=2)

BITNET = dict(hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1, rms_norm_eps=1e-5,
              max_position_embeddings=256, tie_word_embeddings=True, torch_dtype="bfloat16")
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32}
YARN_ROPE = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}

REMOTE = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, rms_norm_eps=1e-6, hidden_act="silu",
              initializer_range=0.02, tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True, pad_token_id=0,
              **SENTENCEPIECE_IDS)

CHATGLM = dict(architectures=["ChatGLMModel"], model_type="chatglm", hidden_size=64, num_layers=2, num_attention_heads=4,
               multi_query_attention=True, kv_channels=16, ffn_hidden_size=96, seq_length=256, layernorm_epsilon=1e-5, rmsnorm=True,
               post_layer_norm=True, add_bias_linear=False, add_qkv_bias=True, apply_residual_connection_post_layernorm=False,
               original_rope=True, torch_dtype="bfloat16", tie_word_embeddings=False, use_cache=True)

# name: class of the configuration (or of remote_models.py), its values, tokenizer, which `features` must matter, rows
# of padding in the vocabulary, and whether config.json is written in its `older` form, rows before the padding that are
# zero too
MODELS = {
    "llama2": dict(kind="LlamaConfig", older=True, tokenizer=llama2_tokenizer, pad_rows=0, features=[],
                   config=dict(SMALL, num_key_value_heads=4, **SENTENCEPIECE_IDS)),
    "llama3": dict(kind="LlamaConfig", tokenizer=llama3_tokenizer, pad_rows=0, features=["rope_scaling"],
                   config=dict(SMALL, num_attention_heads=8, rope_scaling=LLAMA3_ROPE)),
    "llama3-tied": dict(kind="LlamaConfig", tokenizer=llama3_tied_tokenizer, pad_rows=0, features=["rope_scaling"],
                        config=dict(SMALL, head_dim=32, rope_theta=500000.0, tie_word_embeddings=True,
                                    rope_scaling=dict(LLAMA3_ROPE, factor=32.0))),
    "llama-linear": dict(kind="LlamaConfig", older=True, tokenizer=tokenizer_model_only, pad_rows=0, features=["rope_scaling"],
                         config=dict(SMALL, num_key_value_heads=1, rms_norm_eps=1e-6, tie_word_embeddings=True,
                                     rope_scaling={"rope_type": "linear", "factor": 4.0}, **SENTENCEPIECE_IDS)),
    "llama-yarn": dict(kind="LlamaConfig", tokenizer=digits_tokenizer, pad_rows=0, features=["rope_scaling", "biases"],
                       config=dict(SMALL, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                   rope_scaling=YARN_ROPE)),
    "mistral": dict(kind="MistralConfig", tokenizer=mistral_tokenizer, pad_rows=0, features=["sliding_window"],
                    config=dict(SMALL, sliding_window=16, head_dim=16, rope_theta=1000000.0, **SENTENCEPIECE_IDS)),
    "qwen2": dict(kind="Qwen2Config", tokenizer=qwen2_tokenizer, pad_rows=6, features=["biases"],
                  config=dict(SMALL, rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=True)),
    "baichuan": dict(remote="Baichuan", tokenizer=baichuan_tokenizer, pad_rows=0, features=[],
                     config=dict(REMOTE, architectures=["BaiChuanForCausalLM"], model_type="baichuan", max_position_embeddings=256,
                                 model_max_length=256)),
    "baichuan2-13b": dict(remote="Baichuan", tokenizer=baichuan_tokenizer, pad_rows=0, features=["alibi", "unit_head"],
                          config=dict(REMOTE, architectures=["BaichuanForCausalLM"], model_type="baichuan", hidden_size=96,
                                      num_attention_heads=6, model_max_length=256, z_loss_weight=0)),
    "bitnet": dict(remote="TernaryBitNet", tokenizer=tokenizer_model_only, pad_rows=0, features=["ternary", "sub_norms"],
                   config=dict(BITNET, architectures=["BitnetForCausalLM"], model_type="llama", hidden_act="silu", weight_bits=1, input_bits=8,
                               rope_theta=10000.0, **SENTENCEPIECE_IDS)),
    "bitnet-2b": dict(remote="TernaryBitNet", tokenizer=llama3_tokenizer, pad_rows=0, features=["relu2", "sub_norms"],
                      config=dict(BITNET, intermediate_size=96, architectures=["BitNetForCausalLM"], model_type="bitnet", hidden_act="relu2", rope_theta=500000.0, bos_token_id=395, eos_token_id=396,
                                  quantization_config={"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"})),
    "internlm": dict(remote="InternLm", tokenizer=internlm_tokenizer, pad_rows=0, features=["biases"],
                     config=dict(REMOTE, architectures=["InternLMForCausalLM"], model_type="internlm", max_position_embeddings=256,
                                 bias=True, rotary={"base": 10000, "type": "dynamic"})),
    "internlm2": dict(remote="InternLm2", tokenizer=internlm_tokenizer, pad_rows=0, features=["biases"],
                      config=dict(REMOTE, architectures=["InternLM2ForCausalLM"], model_type="internlm2", max_position_embeddings=256,
                                  num_key_value_heads=2, bias=True, rope_theta=1000000, rope_scaling={"type": "dynamic", "factor": 2.0})),
    "orion": dict(remote="Orion", tokenizer=tokenizer_model_only, pad_rows=0, features=["biases"],
                  config=dict(REMOTE, architectures=["OrionForCausalLM"], model_type="orion", max_position_embeddings=256,
                              num_key_value_heads=2, rms_norm_eps=1e-5, rope_theta=10000.0)),
    "xverse": dict(remote="Xverse", tokenizer=xverse_tokenizer, pad_rows=0, features=[],
                   config=dict(REMOTE, architectures=["XverseForCausalLM"], model_type="xverse", max_position_embeddings=256)),
    "codeshell": dict(remote="CodeShell", tokenizer=digits_tokenizer, pad_rows=0, features=["biases"],
                      config=dict(architectures=["CodeShellForCausalLM"], model_type="codeshell", n_embd=64, n_layer=2, n_head=4, n_inner=96,
                                  n_positions=256, layer_norm_epsilon=1e-5, activation_function="gelu_pytorch_tanh", scale_attn_weights=True,
                                  group_query_attention=True, num_query_groups=2, position_embedding_type="rope", rope_scaling=None,
                                  torch_dtype="bfloat16", tie_word_embeddings=False, use_cache=True)),
    "minicpm": dict(remote="MiniCpm", tokenizer=tokenizer_model_only, pad_rows=0, features=["scale_emb", "scale_depth", "dim_model_base"],
                    config=dict(REMOTE, architectures=["MiniCPMForCausalLM"], model_type="minicpm", max_position_embeddings=256,
                                num_key_value_heads=2, rms_norm_eps=1e-5, scale_emb=2, scale_depth=1.1, dim_model_base=96)),
    "openelm": dict(remote="OpenElm", tokenizer=tokenizer_model_only, pad_rows=0, features=["qk_norm"],
                    config=dict(architectures=["OpenELMForCausalLM"], model_type="openelm", model_dim=64, num_transformer_layers=2, head_dim=16,
                                num_query_heads=[2, 4], num_kv_heads=[1, 2], ffn_multipliers=[0.7, 2.0], ffn_dim_divisor=32,
                                ffn_with_glu=True, normalize_qk_projections=True, normalization_layer_name="rms_norm",
                                activation_fn_name="swish", share_input_output_layers=True, max_context_length=256, rope_freq_constant=10000,
                                rope_max_length=512, torch_dtype="bfloat16", use_cache=True, **SENTENCEPIECE_IDS)),
    "plamo": dict(remote="Plamo", tokenizer=tokenizer_model_only, pad_rows=0, features=[],
                  config=dict(REMOTE, architectures=["PlamoForCausalLM"], model_type="plamo", num_attention_heads=8, n_shared_head=2,
                              max_position_embeddings=256)),
    "refact": dict(remote="Refact", tokenizer=digits_tokenizer, pad_rows=0, features=[],
                   config=dict(architectures=["GPTRefactForCausalLM"], model_type="gpt_refact", n_embd=64, n_layer=2, n_head=4, n_inner=None,
                               n_positions=256, layer_norm_epsilon=1e-5, multi_query=True, attention_bias_in_fp32=True,
                               torch_dtype="bfloat16", tie_word_embeddings=False, use_cache=True)),
    "qwen": dict(remote="Qwen", prompt=qwen_prompt, tokenizer=qwen_tokenizer, pad_rows=4, silent_rows=205, features=["biases"],
                 config=dict(architectures=["QWenLMHeadModel"], model_type="qwen", hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                             kv_channels=16, intermediate_size=192, seq_length=256, max_position_embeddings=512, layer_norm_epsilon=1e-6,
                             rotary_emb_base=10000, rotary_pct=1.0, scale_attn_weights=True, use_dynamic_ntk=True, use_logn_attn=True,
                             no_bias=True, torch_dtype="bfloat16", tie_word_embeddings=False, use_cache=True, bf16=True)),
    "chatglm1": dict(remote="ChatGlm1", prompt=chatglm1_prompt, tokenizer=chatglm1_tokenizer, pad_rows=3,
                     features=["biases", "two_positions", "prefix", "alpha"],
                     config=dict(architectures=["ChatGLMModel"], model_type="chatglm", hidden_size=64, inner_hidden_size=96, num_layers=2,
                                 num_attention_heads=2, layernorm_epsilon=1e-5, max_sequence_length=256, position_encoding_2d=True,
                                 torch_dtype="bfloat16", use_cache=True, tie_word_embeddings=False, mask_token_id=92, gmask_token_id=93,
                                 bos_token_id=95, eos_token_id=96)),
    "moss": dict(remote="Moss", tokenizer=moss_tokenizer, pad_rows=4, features=["biases", "rotary_dim"],
                 config=dict(architectures=["MossForCausalLM"], model_type="moss", n_embd=64, n_layer=2, n_head=4, n_inner=None, rotary_dim=8,
                             n_positions=256, n_ctx=256, layer_norm_epsilon=1e-5, activation_function="gelu_new", scale_attn_weights=True,
                             torch_dtype="bfloat16", tie_word_embeddings=False, use_cache=True)),
    "chatglm2": dict(remote="ChatGlm2", prompt=chatglm2_prompt, tokenizer=chatglm_tokenizer, rows="padded_vocab_size", pad_rows=3, features=["biases", "rope_ratio"],
                     config=dict(CHATGLM, multi_query_group_num=2, rope_ratio=2, eos_token_id=2, pad_token_id=0)),
    "chatglm3": dict(remote="ChatGlm2", tokenizer=chatglm3_tokenizer, rows="padded_vocab_size", pad_rows=3, features=["biases"],
                     config=dict(CHATGLM, multi_query_group_num=1, eos_token_id=2, pad_token_id=0)),
    "glm4": dict(remote="ChatGlm2", tokenizer=glm4_tokenizer, rows="padded_vocab_size", pad_rows=2, features=["biases", "rope_ratio"],
                 config=dict(CHATGLM, multi_query_group_num=2, kv_channels=32, rope_ratio=500, eos_token_id=[384, 391, 393], pad_token_id=384)),
    "bloom": dict(kind="BloomConfig", tokenizer=digits_tokenizer, pad_rows=0, features=["biases"],
                  config=dict(hidden_size=64, n_layer=2, n_head=4, layer_norm_epsilon=1e-5, seq_length=256, tie_word_embeddings=True)),
    "cohere2": dict(kind="Cohere2Config", tokenizer=digits_tokenizer, pad_rows=0, features=["sliding_window"],
                    config=dict(SMALL, num_hidden_layers=3, layer_norm_eps=1e-5, logit_scale=1.5, sliding_window=16, tie_word_embeddings=True,
                                layer_types=["sliding_attention", "sliding_attention", "full_attention"])),
    "command-r": dict(kind="CohereConfig", tokenizer=digits_tokenizer, pad_rows=0, features=["qk_norm"],
                      config=dict(SMALL, layer_norm_eps=1e-5, logit_scale=1.5, use_qk_norm=True, tie_word_embeddings=True)),
    "falcon-7b": dict(kind="FalconConfig", tokenizer=digits_tokenizer, pad_rows=0, features=[],
                      config=dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, multi_query=True, parallel_attn=True, bias=False,
                                  alibi=False, new_decoder_architecture=False, max_position_embeddings=256, tie_word_embeddings=True)),
    "falcon-40b": dict(kind="FalconConfig", tokenizer=digits_tokenizer, pad_rows=0, features=[],
                       config=dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=2, parallel_attn=True, bias=False,
                                   alibi=False, new_decoder_architecture=True, max_position_embeddings=256, tie_word_embeddings=True)),
    "falcon-rw": dict(kind="FalconConfig", attention="sdpa", tokenizer=digits_tokenizer, pad_rows=0, features=["alibi", "biases"],
                      config=dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, multi_query=False, parallel_attn=False, bias=True,
                                  alibi=True, new_decoder_architecture=False, ffn_hidden_size=32, max_position_embeddings=256,
                                  tie_word_embeddings=True)),
    "glm": dict(kind="GlmConfig", tokenizer=qwen2_tokenizer, pad_rows=0, features=["biases"],
                config=dict(SMALL, head_dim=16, attention_bias=True, rms_norm_eps=1.5625e-07, pad_token_id=None)),
    "glm4-0414": dict(kind="Glm4Config", tokenizer=qwen2_tokenizer, pad_rows=0, features=["biases"],
                      config=dict(SMALL, head_dim=32, attention_bias=True, rms_norm_eps=1.5625e-07, pad_token_id=None)),
    "gpt2": dict(kind="GPT2Config", tokenizer=digits_tokenizer, pad_rows=0, features=["biases"],
                 config=dict(n_embd=64, n_layer=2, n_head=4, n_positions=256, n_inner=96, tie_word_embeddings=False)),
    "gptneox": dict(kind="GPTNeoXConfig", tokenizer=digits_tokenizer, pad_rows=0, features=["biases"],
                    config=dict(SMALL, rotary_pct=0.25, use_parallel_residual=True)),
    "granite": dict(kind="GraniteConfig", tokenizer=digits_tokenizer, pad_rows=0, features=[],
                    config=dict(SMALL, embedding_multiplier=2.0, residual_multiplier=0.75, attention_multiplier=0.2, logits_scaling=0.5)),
    "mamba": dict(kind="MambaConfig", tokenizer=digits_tokenizer, pad_rows=0, features=["biases", "state"],
                  config=dict(hidden_size=64, num_hidden_layers=2, state_size=8, expand=2, conv_kernel=4, time_step_rank=4,
                              layer_norm_epsilon=1e-5, tie_word_embeddings=True)),
    "mamba2": dict(kind="Mamba2Config", tokenizer=digits_tokenizer, pad_rows=0, features=["biases", "state"],
                   config=dict(hidden_size=64, num_hidden_layers=2, state_size=8, expand=2, conv_kernel=4, num_heads=8, head_dim=16,
                               n_groups=1, chunk_size=16, layer_norm_epsilon=1e-5, tie_word_embeddings=False)),
    "mpt": dict(kind="MptConfig", tokenizer=digits_tokenizer, pad_rows=0, features=["clip_qkv"],
                config=dict(d_model=64, n_layers=2, n_heads=4, max_seq_len=256, attn_config={"clip_qkv": 1.5},
                            tie_word_embeddings=True)),
    "olmo": dict(kind="OlmoConfig", tokenizer=digits_tokenizer, pad_rows=0, features=["clip_qkv"], config=dict(SMALL, clip_qkv=1.5)),
    "olmo2": dict(kind="Olmo2Config", tokenizer=digits_tokenizer, pad_rows=0, features=["qk_norm"], config=dict(SMALL)),
    "phi2": dict(kind="PhiConfig", tokenizer=digits_tokenizer, pad_rows=0, features=["biases"],
                 config=dict(SMALL, partial_rotary_factor=0.5, layer_norm_eps=1e-5)),
    "stablelm": dict(kind="StableLmConfig", tokenizer=digits_tokenizer, pad_rows=0, features=["biases"],
                     config=dict(SMALL, partial_rotary_factor=0.25, use_qkv_bias=True, layer_norm_eps=1e-5)),
    "stablelm2-12b": dict(kind="StableLmConfig", tokenizer=qwen2_tokenizer, pad_rows=0, features=["qk_norm"],
                          config=dict(SMALL, partial_rotary_factor=0.25, qk_layernorm=True, use_parallel_residual=True, layer_norm_eps=1e-5)),
    "phi4": dict(kind="Phi3Config", tokenizer=llama2_tokenizer, pad_rows=0, features=["sliding_window"],
                 config=dict(SMALL, sliding_window=16, partial_rotary_factor=0.75, pad_token_id=None, **SENTENCEPIECE_IDS)),
    "phi4-long": dict(kind="Phi3Config", tokenizer=tokenizer_model_only, pad_rows=0, features=["rope_scaling"],
                      config=dict(SMALL, original_max_position_embeddings=16, pad_token_id=None, **SENTENCEPIECE_IDS,
                                  rope_scaling={"type": "longrope", "short_factor": [1.0 + 0.1 * place for place in range(8)],
                                                "long_factor": [1.0 + 0.7 * place for place in range(8)]})),
    "starcoder": dict(kind="GPTBigCodeConfig", tokenizer=digits_tokenizer, pad_rows=0, features=["biases"],
                      config=dict(n_embd=64, n_layer=2, n_head=4, n_positions=256, n_inner=96, multi_query=True, tie_word_embeddings=True)),
    "starcoder2": dict(kind="Starcoder2Config", tokenizer=digits_tokenizer, pad_rows=0, features=["biases", "sliding_window"],
                       config=dict(SMALL, norm_epsilon=1e-5, sliding_window=16, use_bias=True)),
    "gemma": dict(kind="GemmaConfig", tokenizer=tokenizer_model_only, pad_rows=0, features=[],
                  config=dict(SMALL, num_key_value_heads=1, head_dim=32, rms_norm_eps=1e-6, tie_word_embeddings=True, **SENTENCEPIECE_IDS)),
    "gemma2": dict(kind="Gemma2Config", tokenizer=tokenizer_model_only, pad_rows=0,
                   features=["sliding_window", "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"],
                   config=dict(SMALL, head_dim=32, rms_norm_eps=1e-6, tie_word_embeddings=True, sliding_window=16, query_pre_attn_scalar=24,
                               attn_logit_softcapping=4.0, final_logit_softcapping=6.0, **SENTENCEPIECE_IDS)),
    "gemma3": dict(kind="Gemma3TextConfig", tokenizer=tokenizer_model_only, pad_rows=0, features=["sliding_window", "rope_scaling", "query_pre_attn_scalar"],
                   config=dict(SMALL, num_hidden_layers=3, head_dim=16, rms_norm_eps=1e-6, tie_word_embeddings=True, sliding_window=16,
                               rope_theta=1000000.0, rope_local_base_freq=10000.0, rope_scaling={"rope_type": "linear", "factor": 8.0},
                               layer_types=["sliding_attention", "sliding_attention", "full_attention"], query_pre_attn_scalar=12,
                               **SENTENCEPIECE_IDS)),
    "mixtral": dict(kind="MixtralConfig", tokenizer=mistral_tokenizer, pad_rows=0, features=["router"],
                    config=dict(SMALL, intermediate_size=32, num_local_experts=4, num_experts_per_tok=2, head_dim=16, rope_theta=1000000.0,
                                sliding_window=None, **SENTENCEPIECE_IDS)),
    "qwen2moe": dict(kind="Qwen2MoeConfig", tokenizer=qwen2_tokenizer, pad_rows=6,
                     features=["router", "biases", "norm_topk_prob", "shared_expert", "shared_expert_gate"],
                     config=dict(SMALL, rms_norm_eps=1e-6, num_hidden_layers=3, mlp_only_layers=[1], decoder_sparse_step=1, num_experts=4,
                                 num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=64, norm_topk_prob=False)),
    "qwen3moe": dict(kind="Qwen3MoeConfig", tokenizer=qwen3_tokenizer, pad_rows=1, features=["router", "qk_norm", "norm_topk_prob"],
                     config=dict(SMALL, head_dim=32, rms_norm_eps=1e-6, rope_theta=1000000.0, num_experts=8, num_experts_per_tok=3,
                                 moe_intermediate_size=32, norm_topk_prob=True, mlp_only_layers=[], decoder_sparse_step=1)),
    "olmoe": dict(kind="OlmoeConfig", tokenizer=digits_tokenizer, pad_rows=0, features=["router", "qk_norm", "norm_topk_prob"],
                  config=dict(SMALL, num_key_value_heads=4, intermediate_size=32, num_experts=4, num_experts_per_tok=2, norm_topk_prob=False)),
    "deepseek2": dict(kind="DeepseekV2Config", tokenizer=digits_tokenizer, pad_rows=0, features=["router", "shared_expert", "expert_groups"],
                      config=dict(LATENT, kv_lora_rank=64, qk_nope_head_dim=16, v_head_dim=24, q_lora_rank=None, topk_method="group_limited_greedy", n_group=4, topk_group=2, num_experts_per_tok=3,
                                  n_shared_experts=1, routed_scaling_factor=1.5)),
    "deepseek3": dict(kind="DeepseekV3Config", tokenizer=digits_tokenizer, pad_rows=0,
                      features=["router", "shared_expert", "expert_groups", "selection_bias", "norm_topk_prob", "rope_scaling"],
                      config=dict(LATENT, q_lora_rank=48, n_group=2, topk_group=1, num_experts_per_tok=2, n_shared_experts=1, routed_scaling_factor=2.5,
                                  norm_topk_prob=True, rope_scaling=dict(YARN_ROPE, type="yarn", mscale=1.0, mscale_all_dim=1.0))),
    "granitemoe": dict(kind="GraniteMoeSharedConfig", tokenizer=digits_tokenizer, pad_rows=0, features=["router", "shared_expert"],
                       config=dict(SMALL, intermediate_size=32, shared_intermediate_size=48, num_local_experts=4, num_experts_per_tok=2, embedding_multiplier=2.0,
                                   residual_multiplier=0.75, attention_multiplier=0.2, logits_scaling=0.5)),
    "qwen3": dict(kind="Qwen3Config", tokenizer=qwen3_tokenizer, pad_rows=1, features=["qk_norm"],
                  config=dict(SMALL, head_dim=32, rms_norm_eps=1e-6, rope_theta=1000000.0)),
}


def generation_config(name, ids):
    """generation_config.json as published models have it; `ids` gives an added token's id by its text."""
    if name == "chatglm1":
        return {"bos_token_id": ids["<sop>"], "eos_token_id": ids["<eop>"]}
    if name == "glm4":
        return {"eos_token_id": [ids[text] for text in ("<|endoftext|>", "<|user|>", "<|observation|>")], "pad_token_id": ids["<|endoftext|>"],
                "do_sample": True, "temperature": 0.8, "top_p": 0.8, "max_length": 256}
    if name == "moss":
        return {"bos_token_id": ids["<|endoftext|>"], "eos_token_id": [ids["<eom>"], ids["<|endoftext|>"]]}
    if name == "qwen":
        return {"chat_format": "chatml", "eos_token_id": ids["<|endoftext|>"], "pad_token_id": ids["<|endoftext|>"], "top_p": 0.8}
    if name.startswith("qwen"):
        return {"bos_token_id": ids["<|endoftext|>"], "pad_token_id": ids["<|endoftext|>"], "do_sample": True,
                "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]], "temperature": 0.7, "top_k": 20, "top_p": 0.8}
    if name in ("llama3", "bitnet-2b"):
        return {"bos_token_id": ids["<|begin_of_text|>"], "eos_token_id": [ids["<|end_of_text|>"], ids["<|eot_id|>"]]}
    if name == "llama3-tied":
        return {"bos_token_id": ids["<|begin_of_text|>"], "eos_token_id": ids["<|eot_id|>"]}
    if "<|endoftext|>" in ids:
        return {"bos_token_id": ids["<|endoftext|>"], "eos_token_id": ids["<|endoftext|>"]}
    return {"bos_token_id": 1, "eos_token_id": 2}


def write_generation_config(folder, name, ids):
    write_json(folder, "generation_config.json", generation_config(name, ids))
