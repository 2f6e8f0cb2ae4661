#!/usr/bin/env python3
"""Write the tiny random checkpoints and their goldens.

    python scripts/make_fixtures.py [--out fixtures/models] [NAME ...]

For every model of fixture_models.py: a Hugging Face folder (bf16 weights, each on a grid that bf16 and f16 both hold
exactly) with golden.json and golden.safetensors, computed in float64 by the transformers library, or by remote_models.py
for models that no release of it has. The seed is the first
for which no greedy choice is closer than 0.05 and the 16 tokens are varied; the script refuses a model whose special
feature (rope scaling, window, biases ...) does not show in its logits.
"""
import argparse
import copy
import json
import math
import os
import shutil
import sys
from importlib.metadata import version

# The kernels.py of this folder is not the optional package that transformers looks for.
sys.modules["kernels"] = None

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.modeling_utils import no_init_weights

from fixture_models import MODELS, write_generation_config
from fixture_texts import CHAT, PROMPTS, hard_texts
from fixture_tokenizers import write_json
import remote_models
import ternary_models

GREEDY_TOKENS = 16
GAP_MIN = 0.05
ROUTING_GAP_MIN = 0.01
ROUTERS = (".gate.weight", ".router.layer.weight")
DISTINCT_MIN = 9
FEATURE_NMSE_MIN = 1e-3
SEEDS_MAX = 2000
ADDED_MAX = 8


# ---------------------------------------------------------------- weights

def on_grid(values):
    """Rounded to 8 significant bits (bf16), magnitudes below 2^-14 to zero: exact in bf16, f16 and f32."""
    rounded = values.to(torch.float32).to(torch.bfloat16).to(torch.float32)
    return torch.where(rounded.abs() < 2.0 ** -14, torch.zeros_like(rounded), rounded)


def is_head_norm(name):
    return any(part in name for part in ("q_norm", "k_norm", "q_layernorm", "k_layernorm"))


def spread(name, shape, one_plus):
    """Mean and standard deviation of one tensor, by its name: wide enough that every part shows in the logits. `one_plus` for classes
    whose norms multiply by `1 + w`."""
    if name.endswith("bias"):
        return 0.0, 0.4
    if is_head_norm(name):
        return (0.3, 0.4) if one_plus else (1.3, 0.4)
    if one_plus and name == "model.norm.weight":
        # Large logits, though the tied embedding is small.
        return 5.0, 0.35
    if name.endswith("A_log"):
        return 0.0, 0.5
    if name.endswith(".D"):
        return 1.0, 0.35
    if "norm" in name or ".ln_" in name:
        return (0.0, 0.35) if one_plus else (1.0, 0.35)
    if any(part in name for part in ("embed", "wte", "wpe", "lm_head", "output_layer")) or name == "output.weight":
        # These classes multiply the embedding by the square root of its width.
        return 0.0, 0.04 if one_plus else 0.3
    if name.endswith(ROUTERS):
        # Routers whose choices are far from ties.
        return 0.0, 3.0 / shape[-1] ** 0.5
    gain = {"q_proj": 1.3, "k_proj": 1.3, "v_proj": 1.2, "o_proj": 1.6, "q_a_proj": 1.3, "q_b_proj": 1.3, "kv_a_proj_with_mqa": 1.3, "kv_b_proj": 1.3, "gate_proj": 1.3, "up_proj": 1.3, "down_proj": 2.0,
            "c_attn": 1.3, "qkv_proj": 1.3, "out_proj": 1.8, "fc_in": 1.3, "fc_out": 2.0, "c_proj": 1.8, "w1": 1.3, "w2": 1.3, "w3": 1.3, "wqkv": 1.3, "wo": 1.6,
            "in_proj": 1.3, "conv1d": 1.3, "x_proj": 1.3, "dt_proj": 1.3, "shared_expert_gate": 2.0, "input_linear": 1.3, "output_linear": 2.0, "q": 1.3, "kv": 1.2, "gate_up_proj": 1.3, "proj_1": 1.3, "proj_2": 2.0,
            "W_pack": 1.3, "c_fc": 1.3, "fc1": 1.3, "fc2": 2.0, "Wqkv": 1.3, "query_key_value": 1.3, "dense": 1.6, "dense_h_to_4h": 1.3, "dense_4h_to_h": 2.0}
    return 0.0, gain[name.split(".")[-2]] / shape[-1] ** 0.5


def spread_of_class(model_type, name, mean, deviation):
    """The spread in classes whose tokens would drown in biases of every part, or repeat because of a tied head."""
    if name.endswith("bias") and model_type in ("bloom", "falcon-alibi", "gpt2"):
        return mean, 0.15 if model_type == "gpt2" else 0.05
    if name in {"bloom": ("transformer.ln_f.weight",), "falcon-alibi": ("transformer.ln_f.weight",), "mpt": ("transformer.norm_f.weight",),
                "openelm": ("transformer.norm.weight",)}.get(model_type, ()):
        return 0.0, 1.4
    if model_type == "bloom" and ".dense" in name:
        return mean, 2 * deviation
    return mean, deviation


def fill(model, seed, pad_rows):
    generator = torch.Generator().manual_seed(seed)
    model_type = model.config["model_type"] if isinstance(model.config, dict) else getattr(model.config, "model_type", "")
    model_type += "-alibi" if getattr(model.config, "alibi", False) else ""
    one_plus = model_type.startswith("gemma")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_transposed = type(model.get_submodule(name.rpartition(".")[0])).__name__ == "Conv1D"
            shape = parameter.shape[::-1] if is_transposed else parameter.shape
            mean, deviation = spread(name, shape, one_plus)
            mean, deviation = spread_of_class(model_type, name, mean, deviation)
            parameter.copy_(on_grid(torch.randn(parameter.shape, generator=generator) * deviation + mean))
            if pad_rows and any(part in name for part in ("embed", "wte", "lm_head", "output_layer")):
                parameter[-pad_rows:] = 0
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(on_grid(torch.rand(buffer.shape, generator=generator) * 0.3))
        if hasattr(model, "settle"):
            model.settle()


# ---------------------------------------------------------------- goldens

def logits_of(model, ids):
    with torch.no_grad():
        if hasattr(model, "logits"):
            return model.logits(ids).double()
        # The masks of some classes are made in the default type, which must hold the least f64.
        torch.set_default_dtype(torch.float64 if model.config.model_type == "mpt" else torch.float32)
        return model(torch.tensor([ids]), use_cache=False).logits[0].double()


def greedy(model, ids, forbidden):
    """(ids, smallest gap) of 16 greedy tokens, or None as soon as one is too close to call or forbidden."""
    ids, start, smallest = list(ids), len(ids), float("inf")
    for _ in range(GREEDY_TOKENS):
        best = torch.topk(logits_of(model, ids)[-1], 2)
        gap = float(best.values[0] - best.values[1])
        if gap < GAP_MIN or int(best.indices[0]) in forbidden:
            return None
        smallest = min(smallest, gap)
        ids.append(int(best.indices[0]))
    return (ids[start:], smallest) if len(set(ids[start:])) >= DISTINCT_MIN else None


def routing_gap(model, ids):
    """The smallest distance between the score of the last chosen expert and that of the next one."""
    gaps, hooks = [float("inf")], []

    def look(count):
        def hook(_module, _inputs, output):
            best = torch.topk(output[0].float() if isinstance(output, tuple) else output.float(), count + 1, dim=-1).values
            gaps.append(float((best[..., count - 1] - best[..., count]).min()))
        return hook

    def look_at_scores(module, inputs, _output):
        """Of routers that choose by themselves: gaps of the groups' scores, and of the experts' in the groups that are used.
        Softmax keeps the order of logits; the gaps of sigmoids are about a tenth of those of logits."""
        logits = inputs[0].reshape(-1, inputs[0].shape[-1]).double() @ module.weight.T.double()
        bias = getattr(module, "e_score_correction_bias", None)
        scores, best = (logits, 1) if bias is None else (10 * (logits.sigmoid() + bias), 2)
        grouped = scores.reshape(len(scores), module.config.n_group, -1)
        of_groups = torch.topk(grouped, best, dim=-1).values.sum(-1)
        used = torch.topk(of_groups, grouped.shape[1], dim=-1)
        count = module.config.topk_group
        if count < grouped.shape[1]:
            gaps.append(float((used.values[:, count - 1] - used.values[:, count]).min()))
        kept = torch.gather(grouped, 1, used.indices[:, :count, None].expand(-1, -1, grouped.shape[-1])).flatten(1)
        experts = torch.topk(kept, module.top_k + 1, dim=-1).values
        gaps.append(float((experts[:, -2] - experts[:, -1]).min()))

    for name, module in model.named_modules():
        if hasattr(module, "num_group") or hasattr(module, "n_group"):
            hooks.append(module.register_forward_hook(look_at_scores))
        elif isinstance(module, torch.nn.Linear) and f"{name}.weight".endswith(ROUTERS):
            hooks.append(module.register_forward_hook(look(model.config.num_experts_per_tok)))
    logits_of(model, ids)
    for hook in hooks:
        hook.remove()
    return min(gaps)


def find_seed(model, prompts, forbidden, pad_rows):
    for seed in range(SEEDS_MAX):
        fill(model, seed, pad_rows)
        results = []
        for ids in prompts:
            result = greedy(model, ids, forbidden)
            if result is None or routing_gap(model, list(ids) + result[0]) < ROUTING_GAP_MIN:
                break
            results.append(result)
        if len(results) == len(prompts):
            return seed, results
    raise SystemExit(f"no seed below {SEEDS_MAX} gives gaps of {GAP_MIN}")


def without(model, feature):
    """A copy of the model that lacks one feature."""
    if hasattr(model, "without"):
        return model.without(feature)
    if hasattr(model, "logits"):
        return remote_without(model, feature)
    config = transformers.AutoConfig.for_model(**model.config.to_dict())
    if feature == "rope_scaling":
        config.rope_scaling = None
    if feature == "sliding_window":
        config.sliding_window = 4096 if config.model_type.startswith(("gemma", "cohere")) else None
    if config.model_type == "mpt" and feature == "clip_qkv":
        config.attn_config.clip_qkv = None
    elif feature in ("attn_logit_softcapping", "final_logit_softcapping", "clip_qkv"):
        setattr(config, feature, None)
    if feature == "norm_topk_prob":
        config.norm_topk_prob = not config.norm_topk_prob
    if feature == "query_pre_attn_scalar":
        config.query_pre_attn_scalar = config.head_dim
    if feature == "expert_groups":
        config.topk_group = config.n_group
    if feature == "alibi":
        config.alibi = False
    other = build(config, model.config._attn_implementation)
    other.load_state_dict(model.state_dict())
    for name, buffer in other.named_buffers():
        if feature == "selection_bias" and name.endswith("e_score_correction_bias"):
            buffer.zero_()
    for name, parameter in other.named_parameters():
        if feature == "biases" and name.endswith("bias"):
            parameter.data.zero_()
        if feature == "qk_norm" and is_head_norm(name):
            parameter.data.fill_(1.0)
        if feature == "router" and name.endswith(ROUTERS):
            # Every token goes to other experts.
            parameter.data.copy_(parameter.data.roll(1, 0))
        if feature == "shared_expert" and any(part in name for part in ("shared_expert.down_proj", "shared_experts.down_proj", "shared_mlp.output_linear")):
            parameter.data.zero_()
        if feature == "shared_expert_gate" and "shared_expert_gate" in name:
            parameter.data.zero_()
        if feature == "state" and name.endswith("A_log"):
            # Nothing is left of a state after one token.
            parameter.data.fill_(10.0)
    return other


def remote_without(model, feature):
    other = copy.deepcopy(model)
    if feature in ("scale_emb", "scale_depth", "dim_model_base"):
        neutral = {"scale_emb": 1, "scale_depth": math.sqrt(other.config["num_hidden_layers"]), "dim_model_base": other.config["hidden_size"]}
        other = type(model)(dict(other.config, **{feature: neutral[feature]})).double().eval()
        other.load_state_dict(model.state_dict())
    if feature == "alibi":
        other.config["max_position_embeddings"] = 256
        other = type(model)(other.config).double().eval()
        other.load_state_dict(model.state_dict())
    if feature == "rope_ratio":
        other.config.pop("rope_ratio")
        other = type(model)(other.config).double().eval()
        other.load_state_dict(model.state_dict())
    if feature == "two_positions":
        other.divided = lambda ids: (torch.arange(len(ids)).expand(2, -1), model.divided(ids)[1])
    if feature == "prefix":
        hidden = lambda ids: torch.ones(len(ids), len(ids), dtype=torch.bool).triu(1)
        other.divided = lambda ids: (model.divided(ids)[0], hidden(ids))
    if feature == "alpha":
        for layer in other.transformer.layers:
            layer.alpha = 1.0
    if feature == "rotary_dim":
        other.config = dict(other.config, rotary_dim=other.config["n_embd"] // other.config["n_head"])
        other = type(model)(other.config).double().eval()
        other.load_state_dict(model.state_dict())
    if feature == "unit_head":
        other.config.pop("z_loss_weight")
    for name, parameter in other.named_parameters():
        if feature == "biases" and name.endswith("bias"):
            parameter.data.zero_()
        if feature == "qk_norm" and is_head_norm(name):
            parameter.data.fill_(1.0)
    return other


def check_features(model, features, ids):
    """NMSE of the logits without each feature; a fixture whose feature does not matter proves nothing."""
    expected = logits_of(model, ids)
    report = {}
    for feature in features:
        error = logits_of(without(model, feature), ids) - expected
        report[feature] = float((error ** 2).sum() / (expected ** 2).sum())
        assert report[feature] > FEATURE_NMSE_MIN, f"{feature} changes the logits by {report[feature]} only"
    return report


def golden_texts(tokenizer, texts):
    rows = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=True)
        options = dict(clean_up_tokenization_spaces=False)
        rows.append({"text": text, "ids": ids, "ids_no_special": tokenizer.encode(text, add_special_tokens=False),
                     "decoded": tokenizer.decode(ids, **options),
                     "decoded_skip_special": tokenizer.decode(ids, skip_special_tokens=True, **options)})
    return rows


def golden_chat(tokenizer, prompt):
    if prompt:
        messages = [message for message in CHAT if message["role"] in prompt.roles]
        text = prompt(messages)
        return {"messages": messages, "text": text, "ids": tokenizer.encode(text, add_special_tokens=False)}
    if not tokenizer.chat_template:
        return None
    text = tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    ids = tokenizer.apply_chat_template(CHAT, tokenize=True, add_generation_prompt=True)
    return {"messages": CHAT, "text": text, "ids": ids}


# ---------------------------------------------------------------- one model

def build_spec(spec, tokenizer, size):
    if "remote" not in spec:
        return build(configuration(spec, tokenizer, size), spec.get("attention", "eager"))
    return remote(spec["remote"], dict(spec["config"], **{spec.get("rows", "vocab_size"): size + spec["pad_rows"]}))


def remote(kind, config):
    return (getattr(remote_models, kind, None) or getattr(ternary_models, kind))(config).double().eval()


def build(config, attention="eager"):
    config._attn_implementation = attention
    # The initialization of some classes fails at norms without a bias; `fill` sets every weight anyway.
    with no_init_weights():
        model = transformers.AutoModelForCausalLM.from_config(config).double().eval()
    model.tie_weights()
    return widened(model)


def widened(model):
    """The same model in f64 throughout: the weights of experts that one class computes in f32 would make their sum f32."""
    for module in model.modules():
        if type(module).__name__ == "DeepseekV3TopkRouter":
            module.register_forward_hook(lambda _module, _inputs, output: (output[0], output[1].double()))
    return model


def load_tokenizer(folder, value):
    """The tokenizer of a folder; where it has only tokenizer.model, its equal tokenizer.json (checked below), or what was made for it."""
    if not isinstance(value, (dict, type(None))):
        return value
    if os.path.exists(os.path.join(folder, "tokenizer.json")):
        return transformers.AutoTokenizer.from_pretrained(folder)
    scratch = folder + ".scratch"
    shutil.copytree(folder, scratch)
    write_json(scratch, "tokenizer.json", value)
    config = config_of(scratch)
    if config["tokenizer_class"] in ("ChatGLMTokenizer", "ChatGLM4Tokenizer", "QWenTokenizer", "MossTokenizer"):
        # Their programs are in no release.
        kept = {key: config[key] for key in ("chat_template",) if key in config}
        plain = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        write_json(scratch, "tokenizer_config.json", dict(plain, **kept))
    tokenizer = transformers.AutoTokenizer.from_pretrained(scratch)
    shutil.rmtree(scratch)
    return tokenizer


def config_of(folder):
    with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as file:
        return json.load(file)


def check_sentencepiece(folder, tokenizer, texts):
    """The ids of tokenizer.model, by the sentencepiece library itself, on every text without added tokens."""
    path = os.path.join(folder, "tokenizer.model")
    if not os.path.exists(path) or config_of(folder).get("tokenizer_class") == "ChatGLM4Tokenizer":
        return 0
    import sentencepiece
    processor = sentencepiece.SentencePieceProcessor(model_file=path)
    plain = [t for t in texts if not any(s in t for s in tokenizer.get_added_vocab())]
    for text in plain:
        ids, expected = tokenizer.encode(text, add_special_tokens=False), processor.encode(text)
        assert ids == expected, f"{text!r}: tokenizer.json gives {ids}, sentencepiece {expected}"
    return len(plain)


def configuration(spec, tokenizer, size):
    values = dict(spec["config"], vocab_size=size + spec["pad_rows"])
    values.setdefault("bos_token_id", tokenizer.bos_token_id)
    values.setdefault("eos_token_id", tokenizer.eos_token_id)
    return getattr(transformers, spec["kind"])(**values)


def save_weights(model, folder):
    """A copy is narrowed: the rotary frequencies of the model itself must stay as they are."""
    if hasattr(model, "logits"):
        narrow = lambda value: value if value.dtype == torch.uint8 else value.to(torch.bfloat16)
        tensors = {name: narrow(value).contiguous() for name, value in model.state_dict().items()}
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        return write_json(folder, "config.json", model.config)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder, safe_serialization=True)


def age_config(folder):
    """Rewrites config.json as versions before 4.40 wrote it: torch_dtype, `type` in rope_scaling, no head_dim, fewer keys."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config["torch_dtype"] = config.pop("dtype")
    for key in ("head_dim", "attention_bias", "attention_dropout", "mlp_bias"):
        config.pop(key)
    if config["rope_scaling"]:
        config["rope_scaling"]["type"] = config["rope_scaling"].pop("rope_type")
    write_json(folder, "config.json", config)


def make(name, spec, out):
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    size, value = spec["tokenizer"](folder)
    tokenizer = load_tokenizer(folder, value)
    assert len(tokenizer) == size and tokenizer.clean_up_tokenization_spaces is False
    texts = hard_texts(sorted(tokenizer.get_added_vocab(), key=tokenizer.get_added_vocab().get)[:ADDED_MAX])
    from_sentencepiece = check_sentencepiece(folder, tokenizer, texts)
    model = build_spec(spec, tokenizer, size)
    prompts = [tokenizer.encode(p) for p in PROMPTS]
    assert len(prompts[0]) >= 24, f"{name}: {[len(p) for p in prompts]} tokens"
    forbidden = set(tokenizer.get_added_vocab().values()) | set(range(size, size + spec["pad_rows"]))
    seed, results = find_seed(model, prompts, forbidden, spec["pad_rows"] + spec.get("silent_rows", 0))
    features = check_features(model, spec["features"], prompts[0])
    measured = {"nmse_with_rounded_inputs": model.rounding_nmse(prompts[0])} if hasattr(model, "rounding_nmse") else {}
    save_weights(model, folder)
    if spec.get("older"):
        age_config(folder)
    write_generation_config(folder, name, tokenizer.get_added_vocab())
    write_goldens(folder, model, tokenizer, texts, prompts, results,
                  {"model": name, "seed": seed, "nmse_without": features, **measured, "texts_checked_by_sentencepiece": from_sentencepiece})


def load_saved(folder, model):
    if not hasattr(model, "logits"):
        return widened(transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation=model.config._attn_implementation, dtype=torch.float64).eval())
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        saved = type(model)(json.load(file)).double().eval()
    saved.load_state_dict({name: value.double() for name, value in load_file(os.path.join(folder, "model.safetensors")).items()})
    return saved


def write_goldens(folder, model, tokenizer, texts, prompts, results, about):
    saved = load_saved(folder, model)
    logits = {}
    for i, ids in enumerate(prompts):
        logits[f"logits_{i}"] = logits_of(saved, ids)
        assert torch.equal(logits[f"logits_{i}"], logits_of(model, ids)), "the saved folder is another model"
    save_file({k: v.float().contiguous() for k, v in logits.items()}, os.path.join(folder, "golden.safetensors"))
    names = ("torch", "transformers", "tokenizers", "sentencepiece", "safetensors")
    golden = {
        "command": f"python scripts/make_fixtures.py {about['model']}",
        "versions": {n: version(n) for n in names}, **about,
        "prompts": [{"text": t, "ids": ids, "greedy_ids": g, "min_gap": gap}
                    for t, ids, (g, gap) in zip(PROMPTS, prompts, results)],
        "texts": golden_texts(tokenizer, texts),
        "chat": golden_chat(tokenizer, MODELS[about["model"]].get("prompt")),
    }
    with open(os.path.join(folder, "golden.json"), "w", encoding="utf-8", newline="\n") as file:
        file.write(compact(golden))
    for name in os.listdir(folder):
        os.chmod(os.path.join(folder, name), 0o644)
    print(f"{about['model']}: seed {about['seed']}, gaps {[round(g, 3) for _, g in results]}, "
          f"without features {about['nmse_without']}, {folder_size(folder)} bytes", flush=True)


def compact(value):
    """JSON with lists of numbers on one line."""
    import re
    text = json.dumps(value, ensure_ascii=False, indent=1)
    return re.sub(r"\[\s+((?:\d+,\s+)*\d+)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m.group(1)) + "]", text) + "\n"


def folder_size(folder):
    return sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="fixtures/models")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    os.makedirs(arguments.out, exist_ok=True)
    for name in arguments.names or MODELS:
        make(name, MODELS[name], arguments.out)


if __name__ == "__main__":
    main()
