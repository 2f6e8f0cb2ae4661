"""BitNet b1.58 by the code of transformers, with and without the rounding of inputs to 8 bits.

`TernaryBitNet` is BitNetForCausalLM whose matrices in layers are the ternary linear layers of transformers
(AutoBitLinear). GGUF programs do not round the inputs of these layers, so `logits` does not either; `rounding_nmse`
says what the rounding changes. The configuration decides between the three forms of a checkpoint:

    BitnetForCausalLM                              names of 1bitLLM, matrices made ternary
    BitNetForCausalLM, quantization_mode online    names of Microsoft, matrices made ternary
    BitNetForCausalLM, quantization_mode offline   names of Microsoft, matrices packed, with weight_scale
"""
import contextlib

import torch
import transformers
from torch import nn
from transformers.integrations import bitnet
from transformers.modeling_utils import no_init_weights

# The functions of the ternary layers are compiled by default, which needs a C++ compiler.
torch._dynamo.config.disable = True

NAMES_OF_1BITLLM = {"self_attn.attn_sub_norm": "self_attn.inner_attn_ln", "mlp.ffn_sub_norm": "mlp.ffn_layernorm"}
OUTSIDE = ("architectures", "model_type", "torch_dtype", "dtype", "quantization_config", "weight_bits", "input_bits")


class NoRounding:
    apply = staticmethod(lambda x: x)


@contextlib.contextmanager
def inputs_rounded(is_rounded):
    """The ternary layers with or without the rounding of their inputs."""
    rule = bitnet.ActQuant
    bitnet.ActQuant = rule if is_rounded else NoRounding
    try:
        yield
    finally:
        bitnet.ActQuant = rule


class TernaryBitNet(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        values = transformers.BitNetConfig(**{key: value for key, value in config.items() if key not in OUTSIDE})
        values._attn_implementation = "eager"
        with no_init_weights():
            self.inner = transformers.BitNetForCausalLM(values)
        self.inner.tie_weights()
        mode = config.get("quantization_config", {}).get("quantization_mode", "online")
        self.is_packed = mode == "offline"
        for layer in self.inner.model.layers:
            for module in (layer.self_attn, layer.mlp):
                for name, linear in list(module.named_children()):
                    if isinstance(linear, nn.Linear):
                        ternary = bitnet.AutoBitLinear(linear.in_features, linear.out_features, bias=False, online_quant=not self.is_packed)
                        setattr(module, name, ternary)

    def settle(self):
        """Makes the matrices of a packed model ternary, after they were filled with other numbers."""
        for module in self.modules():
            if self.is_packed and isinstance(module, bitnet.AutoBitLinear):
                magnitude = module.weight.abs().mean()
                module.weight.data = (module.weight / magnitude).round().clamp(-1, 1)
                module.weight_scale.data = magnitude.to(torch.bfloat16).to(module.weight.dtype).reshape(1)

    def logits(self, ids, is_rounded=False):
        with torch.no_grad(), inputs_rounded(is_rounded):
            return self.inner(torch.tensor([ids]), use_cache=False).logits[0]

    def rounding_nmse(self, ids):
        expected = self.logits(ids).double()
        return float(((self.logits(ids, True).double() - expected) ** 2).sum() / (expected ** 2).sum())

    def without(self, feature):
        """A copy that lacks a feature."""
        config = dict(self.config, hidden_act="silu" if feature == "relu2" else self.config["hidden_act"])
        other = type(self)(config).double().eval()
        other.load_state_dict(self.state_dict())
        for module in other.modules():
            if feature == "ternary" and isinstance(module, bitnet.AutoBitLinear):
                module.online_quant, module.weight_scale = False, torch.ones(1)
        for name, parameter in other.named_parameters():
            if feature == "sub_norms" and "sub_norm" in name:
                parameter.data.fill_(1.0)
        return other

    def renamed(self, name):
        for name_of_class, name_of_1bitllm in NAMES_OF_1BITLLM.items():
            if self.config["architectures"] == ["BitnetForCausalLM"]:
                name = name.replace(name_of_class, name_of_1bitllm)
        return name

    def state_dict(self, *_arguments, **_options):
        """As the checkpoint has it."""
        tensors = {}
        for name, value in self.inner.state_dict().items():
            if name == "lm_head.weight" and self.config["tie_word_embeddings"]:
                continue
            if self.is_packed and "_proj.weight" in name and not name.endswith("_scale"):
                value = bitnet.pack_weights(value.clone())
            tensors[self.renamed(name)] = value
        return tensors

    def load_state_dict(self, tensors):
        own = self.inner.state_dict()
        for name, value in own.items():
            is_tied = name == "lm_head.weight" and self.config["tie_word_embeddings"]
            found = tensors["model.embed_tokens.weight" if is_tied else self.renamed(name)]
            if found.shape != value.shape:
                found = bitnet.unpack_weights(found.to(torch.uint8), dtype=value.dtype)
            value.copy_(found)
