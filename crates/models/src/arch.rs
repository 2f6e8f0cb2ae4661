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
mod internlm3;
mod llama;
mod llama2c;
mod minicpm;
mod mistral;
mod moss;
mod mpt;
mod olmo;
mod olmo2;
mod openelm;
mod orion;
mod phi2;
mod phi3;
mod plamo;
mod qwen;
mod qwen2;
mod qwen3;
mod refact;
mod stablelm;
mod starcoder;
mod starcoder2;
mod xverse;

/// Every architecture. If several share a GGUF name, the first one reads the GGUF file.
pub static ARCHITECTURES: &[&Architecture] = &[
    &llama::LLAMA,
    &mistral::MISTRAL,
    &llama2c::LLAMA2C,
    &internlm::INTERNLM,
    &internlm3::INTERNLM3,
    &qwen2::QWEN2,
    &qwen::QWEN,
    &qwen3::QWEN3,
    &baichuan::BAICHUAN,
    &chatglm::CHATGLM,
    &glm::GLM,
    &chatglm1::CHATGLM1,
    &moss::MOSS,
    &bloom::BLOOM,
    &command_r::COMMAND_R,
    &codeshell::CODESHELL,
    &cohere2::COHERE2,
    &falcon::FALCON,
    &gemma::GEMMA,
    &gemma2::GEMMA2,
    &gemma3::GEMMA3,
    &glm4::GLM4,
    &gpt2::GPT2,
    &gptneox::GPTNEOX,
    &granite::GRANITE,
    &internlm2::INTERNLM2,
    &minicpm::MINICPM,
    &mpt::MPT,
    &olmo::OLMO,
    &olmo2::OLMO2,
    &openelm::OPENELM,
    &orion::ORION,
    &phi2::PHI2,
    &plamo::PLAMO,
    &refact::REFACT,
    &phi3::PHI3,
    &stablelm::STABLELM,
    &starcoder::STARCODER,
    &starcoder2::STARCODER2,
    &xverse::XVERSE,
];
