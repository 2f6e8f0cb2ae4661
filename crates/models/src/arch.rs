//! Every architecture, one file each. To add one, write a file with an [`Architecture`] and add one line here.

use crate::architecture::Architecture;

mod baichuan;
mod bert;
mod bitnet;
mod bloom;
mod chatglm;
mod chatglm1;
mod codeshell;
mod cohere2;
mod command_r;
mod deepseek2;
mod falcon;
mod gemma;
mod gemma2;
mod gemma3;
mod glm;
mod glm4;
mod gpt2;
mod gptneox;
mod granite;
mod granitemoe;
mod internlm;
mod internlm2;
mod internlm3;
mod llama;
mod llama2c;
mod mamba;
mod mamba2;
mod minicpm;
mod mistral;
mod mixtral;
mod moss;
mod mpt;
mod olmo;
mod olmo2;
mod olmoe;
mod openelm;
mod orion;
mod phi2;
mod phi3;
mod plamo;
mod qwen;
mod qwen2;
mod qwen2moe;
mod qwen3;
mod qwen3moe;
mod refact;
mod stablelm;
mod starcoder;
mod starcoder2;
mod t5;
mod xverse;
mod yi;

/// Every architecture. If several share a GGUF name, the first one reads the GGUF file.
pub static ARCHITECTURES: &[&Architecture] = &[
    &llama::LLAMA,
    &mistral::MISTRAL,
    &mixtral::MIXTRAL,
    &llama2c::LLAMA2C,
    &internlm::INTERNLM,
    &internlm3::INTERNLM3,
    &qwen2::QWEN2,
    &qwen2moe::QWEN2MOE,
    &qwen::QWEN,
    &qwen3::QWEN3,
    &qwen3moe::QWEN3MOE,
    &baichuan::BAICHUAN,
    &bert::BERT,
    &bitnet::BITNET,
    &bitnet::BITNET_B158_2B,
    &chatglm::CHATGLM,
    &glm::GLM,
    &chatglm1::CHATGLM1,
    &moss::MOSS,
    &bloom::BLOOM,
    &command_r::COMMAND_R,
    &codeshell::CODESHELL,
    &cohere2::COHERE2,
    &deepseek2::DEEPSEEK2,
    &deepseek2::DEEPSEEK3,
    &falcon::FALCON,
    &gemma::GEMMA,
    &gemma2::GEMMA2,
    &gemma3::GEMMA3,
    &glm4::GLM4,
    &gpt2::GPT2,
    &gptneox::GPTNEOX,
    &granite::GRANITE,
    &granitemoe::GRANITEMOE,
    &internlm2::INTERNLM2,
    &mamba::MAMBA,
    &mamba2::MAMBA2,
    &minicpm::MINICPM,
    &mpt::MPT,
    &olmo::OLMO,
    &olmo2::OLMO2,
    &openelm::OPENELM,
    &olmoe::OLMOE,
    &orion::ORION,
    &phi2::PHI2,
    &plamo::PLAMO,
    &refact::REFACT,
    &phi3::PHI3,
    &stablelm::STABLELM,
    &starcoder::STARCODER,
    &starcoder2::STARCODER2,
    &t5::T5,
    &t5::MT5,
    &t5::UMT5,
    &xverse::XVERSE,
    &yi::YI,
];
