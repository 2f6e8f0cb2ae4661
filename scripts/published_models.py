"""Models that share a class with others: the keys of the published config.json, with smaller sizes and vocabularies.

    python scripts/published_models.py FOLDER

writes the models of fixtures/published.json as checkpoints.

`source` is the Hugging Face repository of the model. The keys were written without access to the published files: they
are not copies of them. `tokenizer` is the fixture whose tokenizer the test uses. `oracle` replaces keys if
transformers lacks the class; `remote` is a class of remote_models.py.
"""
import json
import pathlib
import shutil
import sys

import numpy as np
from safetensors.numpy import save_file

SMALL = dict(hidden_size=64, intermediate_size=96, num_attention_heads=4, num_hidden_layers=2)
PIECES = dict(vocab_size=418, bos_token_id=1, eos_token_id=2)
BYTES = dict(vocab_size=382, bos_token_id=380, eos_token_id=380)
LLAMA = dict(architectures=["LlamaForCausalLM"], hidden_act="silu", initializer_range=0.02, model_type="llama", use_cache=True,
             torch_dtype="float16", **SMALL)
AS_LLAMA = dict(architectures=["LlamaForCausalLM"], model_type="llama")
BAICHUAN = dict(architectures=["BaichuanForCausalLM"], model_type="baichuan", hidden_act="silu", initializer_range=0.02, pad_token_id=0,
                rms_norm_eps=1e-6, tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True, _from_model_config=True,
                vocab_size=384, bos_token_id=1, eos_token_id=2)
DEEPSEEK2 = dict(
    architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", attention_bias=False, attention_dropout=0.0, aux_loss_alpha=0.001,
    first_k_dense_replace=1, hidden_act="silu", initializer_range=0.02, kv_lora_rank=24, max_position_embeddings=256,
    moe_intermediate_size=32, moe_layer_freq=1, n_routed_experts=6, n_shared_experts=2, norm_topk_prob=False, num_experts_per_tok=2,
    num_key_value_heads=4, pretraining_tp=1, qk_nope_head_dim=16, qk_rope_head_dim=8, rms_norm_eps=1e-6, rope_theta=10000,
    scoring_func="softmax", seq_aux=True, tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True, v_head_dim=12, **SMALL, **BYTES)

MODELS = {
    "AquilaChat2": dict(source="BAAI/AquilaChat2-7B", tokenizer="gptneox", oracle=AS_LLAMA, config=dict(
        LLAMA, architectures=["AquilaForCausalLM"], model_type="aquila", bos_token_id=380, eos_token_id=380, pad_token_id=0, vocab_size=382,
        max_position_embeddings=256, num_key_value_heads=4, rms_norm_eps=1e-5, rope_theta=10000, tie_word_embeddings=False,
        torch_dtype="float32", transformers_version="4.30.2",
        auto_map={"AutoConfig": "configuration_aquila.AquilaConfig", "AutoModelForCausalLM": "modeling_aquila.AquilaForCausalLM"})),
    "AquilaChat2-34B": dict(source="BAAI/AquilaChat2-34B", tokenizer="gptneox", oracle=AS_LLAMA, config=dict(
        LLAMA, architectures=["AquilaForCausalLM"], model_type="aquila", bos_token_id=380, eos_token_id=380, pad_token_id=0, vocab_size=382,
        max_position_embeddings=256, num_key_value_heads=1, rms_norm_eps=1e-5, rope_theta=10000, tie_word_embeddings=False)),
    "Baichuan-13B": dict(source="baichuan-inc/Baichuan-13B-Chat", tokenizer="baichuan", remote="Baichuan", config=dict(
        BAICHUAN, **dict(SMALL, hidden_size=80, num_attention_heads=5), gradient_checkpointing=[False], model_max_length=256)),
    "Baichuan2-7B": dict(source="baichuan-inc/Baichuan2-7B-Chat", tokenizer="baichuan", remote="Baichuan", config=dict(
        BAICHUAN, **SMALL, max_position_embeddings=256, model_max_length=256, z_loss_weight=0)),
    "bloomz": dict(source="bigscience/bloomz-560m", tokenizer="gptneox", config=dict(
        apply_residual_connection_post_layernorm=False, attention_dropout=0.0, attention_softmax_in_fp32=True, architectures=["BloomForCausalLM"],
        bias_dropout_fusion=True, hidden_dropout=0.0, initializer_range=0.02, layer_norm_epsilon=1e-5, masked_softmax_fusion=True,
        model_type="bloom", n_embed=96, n_inner=None, n_layer=2, num_attention_heads=6, offset_alibi=100, pad_token_id=3, pretraining_tp=1,
        seq_length=256, skip_bias_add=True, skip_bias_add_qkv=False, slow_but_exact=False, unk_token_id=0, use_cache=True, **BYTES)),
    "Chinese-LLaMA": dict(source="ziqingyang/chinese-llama-lora-7b, merged", tokenizer="llama2", config=dict(
        LLAMA, **PIECES, max_position_embeddings=256, pad_token_id=0, rms_norm_eps=1e-6, tie_word_embeddings=False,
        transformers_version="4.28.1")),
    "Chinese-LLaMA-2": dict(source="hfl/chinese-llama-2-7b-16k", tokenizer="llama2", config=dict(
        LLAMA, **PIECES, max_position_embeddings=256, num_key_value_heads=4, pad_token_id=0, pretraining_tp=1, rms_norm_eps=1e-5,
        rope_scaling={"factor": 4.0, "type": "linear"}, tie_word_embeddings=False, transformers_version="4.31.0")),
    "Llama-3-Chinese": dict(source="hfl/llama-3-chinese-8b-instruct", tokenizer="llama3", config=dict(
        LLAMA, vocab_size=401, bos_token_id=395, eos_token_id=399, attention_bias=False, attention_dropout=0.0, max_position_embeddings=256,
        num_key_value_heads=2, pretraining_tp=1, rms_norm_eps=1e-5, rope_scaling=None, rope_theta=500000.0, tie_word_embeddings=False,
        torch_dtype="bfloat16", transformers_version="4.40.0")),
    "deepseek-coder": dict(source="deepseek-ai/deepseek-coder-6.7b-instruct", tokenizer="gptneox", config=dict(
        LLAMA, **BYTES, max_position_embeddings=256, num_key_value_heads=4, pretraining_tp=1, rms_norm_eps=1e-6,
        rope_scaling={"factor": 4.0, "type": "linear"}, rope_theta=100000, tie_word_embeddings=False, torch_dtype="bfloat16",
        transformers_version="4.33.1")),
    "DeepSeek-V2-Lite": dict(source="deepseek-ai/DeepSeek-V2-Lite-Chat", tokenizer="gptneox", config=dict(
        DEEPSEEK2, ep_size=1, n_group=1, topk_group=1, topk_method="greedy", q_lora_rank=None, routed_scaling_factor=1.0, max_position_embeddings=256)),
    "DeepSeek-V2": dict(source="deepseek-ai/DeepSeek-V2-Chat", tokenizer="gptneox", config=dict(
        DEEPSEEK2, ep_size=1, n_group=3, topk_group=2, topk_method="group_limited_greedy", q_lora_rank=40, routed_scaling_factor=16.0)),
    "DeepSeek-V3": dict(source="deepseek-ai/DeepSeek-V3, a bf16 copy", tokenizer="gptneox", config=dict(
        SMALL, **BYTES, architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", attention_bias=False, attention_dropout=0.0,
        aux_loss_alpha=0.001, ep_size=1, first_k_dense_replace=1, hidden_act="silu", initializer_range=0.02, kv_lora_rank=24,
        max_position_embeddings=256, moe_intermediate_size=32, moe_layer_freq=1, n_group=3, n_routed_experts=6, n_shared_experts=1,
        norm_topk_prob=True, num_experts_per_tok=2, num_key_value_heads=4, num_nextn_predict_layers=1, pretraining_tp=1, q_lora_rank=40,
        qk_nope_head_dim=16, qk_rope_head_dim=8, rms_norm_eps=1e-6, rope_theta=10000, routed_scaling_factor=2.5, scoring_func="sigmoid",
        seq_aux=True, tie_word_embeddings=False, topk_group=2, topk_method="noaux_tc", torch_dtype="bfloat16",
        transformers_version="4.33.1", use_cache=True, v_head_dim=12, rope_scaling={
            "beta_fast": 32, "beta_slow": 1, "factor": 4, "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 64, "type": "yarn"})),
    "Falcon-RW": dict(source="tiiuae/falcon-rw-1b", tokenizer="gptneox", attention="sdpa", config=dict(
        BYTES, alibi=True, apply_residual_connection_post_layernorm=False, architectures=["FalconForCausalLM"], attention_dropout=0.0,
        bias=True, hidden_dropout=0.0, hidden_size=96, initializer_range=0.02, layer_norm_epsilon=1e-5, model_type="falcon",
        multi_query=False, new_decoder_architecture=False, num_attention_heads=6, num_hidden_layers=2, parallel_attn=False,
        torch_dtype="bfloat16", use_cache=True)),
    "MPT": dict(source="mosaicml/mpt-7b-instruct", tokenizer="gptneox", attention="eager", config=dict(
        architectures=["MPTForCausalLM"], model_type="mpt", d_model=96, emb_pdrop=0, embedding_fraction=1.0, expansion_ratio=4,
        attn_config={"alibi": True, "alibi_bias_max": 8, "attn_impl": "torch", "attn_pdrop": 0, "attn_type": "multihead_attention",
                     "attn_uses_sequence_id": False, "clip_qkv": None, "prefix_lm": False, "qk_ln": False, "softmax_scale": None},
        init_device="cpu", learned_pos_emb=True, logit_scale=None, max_seq_len=256, n_heads=6, n_layers=2, no_bias=True,
        norm_type="low_precision_layernorm", resid_pdrop=0, torch_dtype="bfloat16", use_cache=False, verbose=0, vocab_size=382)),
    "Refact": dict(source="smallcloudai/Refact-1_6B-fim", tokenizer="gptneox", remote="Refact", config=dict(
        architectures=["GPTRefactForCausalLM"], model_type="gpt_refact", attention_bias_in_fp32=True, attention_softmax_in_fp32=True,
        attn_pdrop=0.1, bos_token_id=-1, do_sample=True, eos_token_id=380, embd_pdrop=0.1, initializer_range=0.02,
        layer_norm_epsilon=1e-5, multi_query=True, n_embd=80, n_head=5, n_inner=None, n_layer=2, n_positions=256, resid_pdrop=0.1,
        scale_attention_softmax_in_fp32=True, scale_attn_weights=True, torch_dtype="bfloat16", use_cache=True, vocab_size=382)),
    "Granite-Code-3B": dict(source="ibm-granite/granite-3b-code-instruct", tokenizer="gptneox", config=dict(
        LLAMA, **BYTES, attention_bias=True, attention_dropout=0.0, max_position_embeddings=256, mlp_bias=True, num_key_value_heads=4,
        pad_token_id=380, pretraining_tp=1, rms_norm_eps=1e-5, rope_scaling=None, rope_theta=10000, tie_word_embeddings=True,
        torch_dtype="bfloat16", transformers_version="4.40.0.dev0")),
    "Granite-Code-34B": dict(source="ibm-granite/granite-34b-code-instruct", tokenizer="gptneox", config=dict(
        **BYTES, architectures=["GPTBigCodeForCausalLM"], model_type="gpt_bigcode", activation_function="gelu_pytorch_tanh",
        attention_softmax_in_fp32=True, attn_pdrop=0.1, embd_pdrop=0.1, initializer_range=0.02, layer_norm_epsilon=1e-5,
        multi_query=True, n_embd=64, n_head=4, n_inner=96, n_layer=2, n_positions=256, pad_token_id=380, resid_pdrop=0.1,
        scale_attention_softmax_in_fp32=True, scale_attn_weights=True, torch_dtype="bfloat16", use_cache=True)),
    "GPT-2": dict(source="openai-community/gpt2", tokenizer="gptneox", config=dict(
        **BYTES, architectures=["GPT2LMHeadModel"], model_type="gpt2", activation_function="gelu_new", attn_pdrop=0.1, embd_pdrop=0.1,
        initializer_range=0.02, layer_norm_epsilon=1e-5, n_ctx=256, n_embd=64, n_head=4, n_layer=2, n_positions=256, resid_pdrop=0.1,
        summary_activation=None, summary_first_dropout=0.1, summary_proj_to_labels=True, summary_type="cls_index", summary_use_proj=True,
        task_specific_params={"text-generation": {"do_sample": True, "max_length": 50}})),
    "Command-R": dict(source="CohereForAI/c4ai-command-r-v01", tokenizer="gptneox", config=dict(
        SMALL, **BYTES, architectures=["CohereForCausalLM"], model_type="cohere", attention_bias=False, attention_dropout=0.0,
        hidden_act="silu", initializer_range=0.02, layer_norm_eps=1e-5, logit_scale=0.75, max_position_embeddings=256,
        model_max_length=256, num_key_value_heads=4, pad_token_id=0, pretraining_tp=1, rope_theta=8000000.0, torch_dtype="float16",
        transformers_version="4.38.2", use_cache=True, use_qk_norm=False)),
    "GraniteMoe": dict(source="ibm-granite/granite-3.0-1b-a400m-instruct", tokenizer="gptneox", config=dict(
        SMALL, **BYTES, architectures=["GraniteMoeForCausalLM"], model_type="granitemoe", attention_bias=False, attention_dropout=0.0,
        attention_multiplier=0.25, embedding_multiplier=6.0, hidden_act="silu", initializer_range=0.02, logits_scaling=0.5,
        max_position_embeddings=256, num_experts_per_tok=2, num_key_value_heads=2, num_local_experts=6, output_router_logits=False,
        pad_token_id=380, residual_multiplier=0.5, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=10000, router_aux_loss_coef=0.0,
        tie_word_embeddings=True, torch_dtype="bfloat16", use_cache=True)),
    "GritLM": dict(source="GritLM/GritLM-7B", tokenizer="mistral", config=dict(
        SMALL, vocab_size=403, bos_token_id=1, eos_token_id=2, architectures=["MistralForCausalLM"], model_type="mistral",
        attention_dropout=0.0, hidden_act="silu", id2label={"0": "LABEL_0"}, initializer_range=0.02, label2id={"LABEL_0": 0},
        max_position_embeddings=256, num_key_value_heads=1, rms_norm_eps=1e-5, rope_theta=10000.0, sliding_window=12,
        tie_word_embeddings=False, torch_dtype="bfloat16", transformers_version="4.37.2", use_cache=True,
        auto_map={"AutoModelForCausalLM": "modeling_gritlm7b.MistralForCausalLM"})),
    "InternLM3": dict(source="internlm/internlm3-8b-instruct", tokenizer="llama2",
                      oracle=dict(AS_LLAMA, rope_scaling=None), config=dict(
        LLAMA, **PIECES, architectures=["InternLM3ForCausalLM"], model_type="internlm3", attention_dropout=0.0, bias=False, head_dim=32,
        max_position_embeddings=256, num_key_value_heads=2, pad_token_id=2, qkv_bias=False, rms_norm_eps=1e-5,
        rope_scaling={"factor": 6.0, "rope_type": "dynamic"}, rope_theta=50000000, tie_word_embeddings=False, torch_dtype="bfloat16",
        auto_map={"AutoModelForCausalLM": "modeling_internlm3.InternLM3ForCausalLM"})),
    "koala": dict(source="TheBloke/koala-7B-HF", tokenizer="llama2", config=dict(
        LLAMA, **PIECES, max_position_embeddings=256, pad_token_id=0, rms_norm_eps=1e-6, tie_word_embeddings=False,
        transformers_version="4.28.0.dev0")),
    "phi-1": dict(source="microsoft/phi-1", tokenizer="gptneox", config=dict(
        SMALL, vocab_size=382, bos_token_id=None, eos_token_id=None, architectures=["PhiForCausalLM"], model_type="phi",
        attention_dropout=0.0, embd_pdrop=0.0, hidden_act="gelu_new", initializer_range=0.02, layer_norm_eps=1e-5, max_position_embeddings=256,
        num_key_value_heads=None, partial_rotary_factor=0.5, qk_layernorm=False, resid_pdrop=0.0, rope_scaling=None, rope_theta=10000.0,
        tie_word_embeddings=False, torch_dtype="float32", transformers_version="4.37.0", use_cache=True)),
    "Phi-3-mini": dict(source="microsoft/Phi-3-mini-4k-instruct", tokenizer="llama2", config=dict(
        SMALL, **PIECES, architectures=["Phi3ForCausalLM"], model_type="phi3", attention_bias=False, attention_dropout=0.0, embd_pdrop=0.0,
        hidden_act="silu", initializer_range=0.02, max_position_embeddings=256, num_key_value_heads=4, original_max_position_embeddings=256,
        pad_token_id=2, resid_pdrop=0.0, rms_norm_eps=1e-5, rope_scaling=None, rope_theta=10000.0, sliding_window=13,
        tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True)),
    "pythia": dict(source="EleutherAI/pythia-70m", tokenizer="gptneox", config=dict(
        SMALL, **BYTES, architectures=["GPTNeoXForCausalLM"], model_type="gpt_neox", hidden_act="gelu", initializer_range=0.02,
        layer_norm_eps=1e-5, max_position_embeddings=256, rotary_emb_base=10000, rotary_pct=0.25, tie_word_embeddings=False,
        torch_dtype="float16", use_cache=True, use_parallel_residual=True)),
    "Qwen1.5": dict(source="Qwen/Qwen1.5-0.5B-Chat", tokenizer="qwen2", config=dict(
        SMALL, vocab_size=400, bos_token_id=391, eos_token_id=392, architectures=["Qwen2ForCausalLM"], model_type="qwen2",
        attention_dropout=0.0, hidden_act="silu", initializer_range=0.02, max_position_embeddings=256, max_window_layers=1,
        num_key_value_heads=4, rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=8, tie_word_embeddings=True,
        torch_dtype="bfloat16", use_cache=True, use_sliding_window=False)),
    "Qwen2.5": dict(source="Qwen/Qwen2.5-7B-Instruct", tokenizer="qwen2", config=dict(
        SMALL, vocab_size=400, bos_token_id=391, eos_token_id=392, architectures=["Qwen2ForCausalLM"], model_type="qwen2",
        attention_dropout=0.0, hidden_act="silu", initializer_range=0.02, max_position_embeddings=256, max_window_layers=2,
        num_key_value_heads=2, rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=8, tie_word_embeddings=False,
        torch_dtype="bfloat16", use_cache=True, use_sliding_window=False)),
    "SmolLM": dict(source="HuggingFaceTB/SmolLM-135M-Instruct", tokenizer="gptneox", config=dict(
        LLAMA, hidden_size=96, num_attention_heads=6, **BYTES, attention_bias=False, attention_dropout=0.0, max_position_embeddings=256, mlp_bias=False,
        num_key_value_heads=3, pretraining_tp=1, rms_norm_eps=1e-5, rope_scaling=None, rope_theta=10000.0, tie_word_embeddings=True,
        torch_dtype="bfloat16", transformers_version="4.42.3")),
    "SmolLM2": dict(source="HuggingFaceTB/SmolLM2-135M-Instruct", tokenizer="gptneox", config=dict(
        LLAMA, hidden_size=96, num_attention_heads=6, **BYTES, attention_bias=False, attention_dropout=0.0, is_llama_config=True, max_position_embeddings=256,
        mlp_bias=False, num_key_value_heads=3, pad_token_id=2, pretraining_tp=1, rms_norm_eps=1e-5, rope_interleaved=False, rope_scaling=None,
        rope_theta=100000, tie_word_embeddings=True, torch_dtype="bfloat16")),
    "StableLM-3B": dict(source="stabilityai/stablelm-3b-4e1t", tokenizer="gptneox", config=dict(
        SMALL, **BYTES, architectures=["StableLmForCausalLM"], model_type="stablelm", hidden_act="silu", initializer_range=0.02,
        layer_norm_eps=1e-5, max_position_embeddings=256, num_key_value_heads=4, partial_rotary_factor=0.25, rope_theta=10000,
        tie_word_embeddings=False, torch_dtype="bfloat16", transformers_version="4.38.0", use_cache=True, use_qkv_bias=False)),
    "vigogne": dict(source="bofenghuang/vigogne-2-7b-chat", tokenizer="llama2", config=dict(
        LLAMA, **PIECES, max_position_embeddings=256, num_key_value_heads=4, pad_token_id=0, pretraining_tp=1, rms_norm_eps=1e-5,
        rope_scaling=None, tie_word_embeddings=False, transformers_version="4.31.0")),
    "Yi": dict(source="01-ai/Yi-6B-Chat", tokenizer="llama2", config=dict(
        LLAMA, **PIECES, max_position_embeddings=256, num_key_value_heads=1, pad_token_id=0, rms_norm_eps=1e-5, rope_scaling=None,
        rope_theta=5000000.0, tie_word_embeddings=False, torch_dtype="bfloat16", transformers_version="4.35.0")),
    "Yi, first version": dict(source="01-ai/Yi-6B", tokenizer="llama2", oracle=AS_LLAMA, config=dict(
        LLAMA, **PIECES, architectures=["YiForCausalLM"], model_type="Yi", max_position_embeddings=256, num_key_value_heads=1, pad_token_id=0,
        rms_norm_eps=1e-5, rope_theta=5000000.0, tie_word_embeddings=False, torch_dtype="bfloat16", transformers_version="4.34.0",
        auto_map={"AutoConfig": "configuration_yi.YiConfig", "AutoModelForCausalLM": "modeling_yi.YiForCausalLM"})),
}


def hashed(name, count, seed):
    """A number of 32 bits for each element: MurmurHash3's last step (fmix32) of a counter."""
    start = seed
    for byte in name.encode():
        start = (start * 31 + byte) % 2 ** 32
    h = (np.arange(count, dtype=np.uint64) * 2654435761 + start) % 2 ** 32
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ (h >> np.uint64(shift))) * factor % 2 ** 32
    return h ^ (h >> np.uint64(16))


def elements(name, shape, seed, center, half):
    """Element i is center + half * (k - 128) / 128, with k the upper 8 bits of its number."""
    numbers = (hashed(name, int(np.prod(shape)), seed) >> np.uint64(24)).astype(np.float64)
    return (center + half * (numbers - 128.0) / 128.0).reshape(shape)


def write_checkpoint(model, ids, tokenizers, folder):
    """Write a model of fixtures/published.json as a checkpoint with goldens, in the form of fixtures/models.

    `tokenizers` is the folder with the fixtures whose tokenizers are copied.
    """
    shutil.copytree(tokenizers / model["tokenizer"], folder, ignore=shutil.ignore_patterns("golden*", "model.safetensors"))
    (folder / "config.json").write_text(json.dumps(model["config"]), encoding="utf-8")
    tensors = {}
    for pattern, (shape, center, half) in model["tensors"].items():
        # A star stands for the numbers of both layers.
        for layer in range(2) if ".*." in pattern else range(1):
            name = pattern.replace(".*.", f".{layer}.", 1)
            tensors[name] = elements(f"{model['name']}/{name}", shape, model["seed"], center, half).astype(np.float32)
    save_file(tensors, folder / "model.safetensors")
    prompt = {"ids": ids, "greedy_ids": model["greedy_ids"]}
    (folder / "golden.json").write_text(json.dumps({"prompts": [prompt]}), encoding="utf-8")
    save_file({"logits_0": np.array([model["logits"]], np.float32)}, folder / "golden.safetensors")


def main():
    fixtures = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
    published = json.loads((fixtures / "published.json").read_text(encoding="utf-8"))
    for model in published["models"]:
        write_checkpoint(model, published["ids"], fixtures / "models", pathlib.Path(sys.argv[1]) / model["name"])


if __name__ == "__main__":
    main()
