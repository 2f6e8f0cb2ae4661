#!/usr/bin/env python3
"""Write what a transformers model computes, tensor by tensor, under the node names that trueup compares by.

    python scripts/trace_transformers.py MODEL_FOLDER OUT.safetensors --ids "1 5 9 12" [--steps 1] [--dtype float32]

Hooks on the modules name what goes in and out; docs/traces.md says what the file holds. `ARCHITECTURES` is the list of
models whose modules are known; a new one is one more entry. `trueup verify MODEL.gguf --ref OUT.safetensors` then names the
first tensor that the GGUF file's weights do not give.
"""
import argparse
import importlib
import json
import os
import sys
from importlib.metadata import version

import torch
import transformers
from safetensors.torch import save_file

# ---------------------------------------------------------------- names

# Modules of a layer: what comes out of them, and what goes in.
LAYER_OUTPUTS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "Qcur", "self_attn.k_proj": "Kcur", "self_attn.v_proj": "Vcur",
    "self_attn.o_proj": "attn_out", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_out", "": "l_out",
}
LAYER_INPUTS = {"self_attn.o_proj": "kqv_out", "post_attention_layernorm": "ffn_inp", "mlp.down_proj": "ffn_swiglu"}
HEAD_NORMS = {"self_attn.q_norm": "Qcur_normed", "self_attn.k_norm": "Kcur_normed"}
MODEL_OUTPUTS = {"model.embed_tokens": "inp_embd", "model.norm": "result_norm", "lm_head": "result_output"}


class Architecture:
    """How the modules of one model type are called, and whether its GGUF turns pairs of neighbours: then rows of query and
    key stand in another order there than here, where the halves of a head are turned."""

    def __init__(self, neighbours=False, outputs=None):
        self.neighbours = neighbours
        self.outputs = {**LAYER_OUTPUTS, **(outputs or {})}


ARCHITECTURES = {
    "llama": Architecture(neighbours=True),
    "mistral": Architecture(neighbours=True),
    "qwen2": Architecture(),
    "qwen3": Architecture(outputs=HEAD_NORMS),
}
TURNED = ("Qcur", "Kcur")


# ---------------------------------------------------------------- hooks

class Tracer:
    """Collects tensors, innermost size last as torch has them, without the batch dimension."""

    def __init__(self, model):
        self.model, self.step, self.layer, self.tensors = model, 0, 0, {}
        self.architecture = ARCHITECTURES[model.config.model_type]
        config = model.config
        self.head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

    def keep(self, name, value):
        self.tensors[f"{self.step}/{name}"] = value.detach()[0].contiguous().clone()

    def in_order(self, name, value):
        """Rows of query and key in the order of the GGUF file: `[..., heads * head size]`."""
        if not (self.architecture.neighbours and name.startswith(TURNED)):
            return value
        halves = value.reshape(*value.shape[:-1], -1, 2, self.head_size // 2)
        return halves.transpose(-1, -2).reshape(value.shape)

    def output_hook(self, name):
        def hook(_module, _inputs, output):
            value = output[0] if isinstance(output, tuple) else output
            self.keep(name, self.in_order(name, value))
        return hook

    def input_hook(self, name):
        def hook(_module, inputs):
            self.keep(name, inputs[0])
        return hook

    def attention_hook(self, index):
        def hook(_module, _inputs, output):
            # [heads, tokens, positions]
            self.keep(f"kq_soft_max-{index}", output[1])
        return hook

    def layer_hook(self, index):
        def hook(_module, _inputs):
            self.layer = index
        return hook

    def attach_layer(self, index, layer):
        layer.register_forward_pre_hook(self.layer_hook(index))
        for path, name in self.architecture.outputs.items():
            module = layer.get_submodule(path)
            biased = getattr(module, "bias", None) is not None
            module.register_forward_hook(self.output_hook(f"{name}_bias-{index}" if biased else f"{name}-{index}"))
        for path, name in LAYER_INPUTS.items():
            layer.get_submodule(path).register_forward_pre_hook(self.input_hook(f"{name}-{index}"))
        layer.self_attn.register_forward_hook(self.attention_hook(index))

    def attach(self):
        for path, name in MODEL_OUTPUTS.items():
            self.model.get_submodule(path).register_forward_hook(self.output_hook(name))
        for index, layer in enumerate(self.model.model.layers):
            self.attach_layer(index, layer)
        self.attach_rope()

    def attach_rope(self):
        """Rotated heads leave no module: the function that turns them is wrapped."""
        module = importlib.import_module(type(self.model).__module__)
        plain = module.apply_rotary_pos_emb

        def traced(*arguments, **options):
            turned = plain(*arguments, **options)
            for name, value in zip(TURNED, turned):
                # [batch, heads, tokens, head size] to [batch, tokens, heads, head size]
                self.keep(f"{name}_rope-{self.layer}", self.in_order(name, value.transpose(1, 2)))
            return turned

        module.apply_rotary_pos_emb = traced


def run(model, tracer, ids, steps):
    """The prompt at once, then `steps` more tokens, each the most likely one; gives all ids and the tokens of each step."""
    cache, step_ids, counts, all_ids = transformers.DynamicCache(), list(ids), [], list(ids)
    for step in range(steps + 1):
        tracer.step = step
        with torch.no_grad():
            output = model(torch.tensor([step_ids]), past_key_values=cache, use_cache=True)
        counts.append(len(step_ids))
        if step < steps:
            step_ids = [int(output.logits[0, -1].argmax())]
            all_ids += step_ids
    return all_ids, counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a Hugging Face folder")
    parser.add_argument("out", help="the safetensors file to write")
    parser.add_argument("--ids", required=True, help="token ids of the prompt, like \"1 5 9\"")
    parser.add_argument("--steps", type=int, default=1, help="tokens behind the prompt")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    arguments = parser.parse_args()
    with open(os.path.join(arguments.model, "config.json"), encoding="utf-8") as file:
        model_type = json.load(file)["model_type"]
    if model_type not in ARCHITECTURES:
        sys.exit(f"{arguments.model}: the modules of {model_type} are not known; known are {', '.join(ARCHITECTURES)}")
    dtype = getattr(torch, arguments.dtype)
    model = transformers.AutoModelForCausalLM.from_pretrained(arguments.model, dtype=dtype, attn_implementation="eager")
    model.eval()
    tracer = Tracer(model)
    tracer.attach()
    ids, counts = run(model, tracer, [int(id) for id in arguments.ids.split()], arguments.steps)
    command = f"scripts/trace_transformers.py {arguments.model} {arguments.out} --ids \"{arguments.ids}\""
    metadata = {"ids": " ".join(map(str, ids)), "tokens": " ".join(map(str, counts)),
                "program": f"transformers {version('transformers')}, torch {version('torch')}",
                "command": f"{command} --steps {arguments.steps} --dtype {arguments.dtype}"}
    save_file(tracer.tensors, arguments.out, metadata)


if __name__ == "__main__":
    main()
