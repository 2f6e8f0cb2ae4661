//! Every architecture, one file each. To add one, write a file with an [`Architecture`] and add one line here.

use crate::architecture::Architecture;

mod baichuan;
mod bloom;
mod chatglm;
mod chatglm1;
mod codeshell;
mod cohere2;
mod command_r;
mod falcon;
mod gemma;
mod gemma2;
mod gemma3;
mod glm;
mod glm4;
mod gpt2;
mod gptneox;
mod granite;
mod internlm;
mod internlm2;
mod llama;
mod llama2c;
mod internlm3;
mod mistral;
mod moss;
mod olmo;
mod minicpm;
mod olmo2;
mod orion;
mod phi2;
mod qwen;
mod mpt;
mod openelm;
mod qwen2;
mod qwen3;
mod phi3;
mod plamo;
mod stablelm;
mod starcoder;
mod starcoder2;
mod xverse;

/// Every architecture. If several share a GGUF name, the first one reads the GGUF file.
pub static ARCHITECTURES: &[&Architecture] = &[
    &llama::LLAMA,
mod refact;
    &mistral::MISTRAL,
    &llama2c::LLAMA2C,
    &internlm::INTERNLM,
    &qwen2::QWEN2,
    &qwen::QWEN,
    &internlm3::INTERNLM3,
    &qwen3::QWEN3,
    &baichuan::BAICHUAN,
    &chatglm::CHATGLM,
    &glm::GLM,
    &chatglm1::CHATGLM1,
    &moss::MOSS,
    &bloom::BLOOM,
    &command_r::COMMAND_R,
    &cohere2::COHERE2,
    &falcon::FALCON,
    &gemma::GEMMA,
    &gemma2::GEMMA2,
    &gemma3::GEMMA3,
    &gpt2::GPT2,
    &glm4::GLM4,
    &gptneox::GPTNEOX,
    &granite::GRANITE,
    &internlm2::INTERNLM2,
    &minicpm::MINICPM,
    &mpt::MPT,
    &olmo::OLMO,
    &olmo2::OLMO2,
    &orion::ORION,
    &phi2::PHI2,
    &stablelm::STABLELM,
    &starcoder::STARCODER,
    &starcoder2::STARCODER2,
    &xverse::XVERSE,
];
    &openelm::OPENELM,
    &plamo::PLAMO,
    &refact::REFACT,
    &phi3::PHI3,
