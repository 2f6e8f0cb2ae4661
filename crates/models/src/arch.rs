//! Every architecture, one file each. To add one, write a file with an [`Architecture`] and add one line here.

use crate::architecture::Architecture;

mod baichuan;
mod chatglm;
mod chatglm1;
mod internlm;
mod llama;
mod llama2c;
mod mistral;
mod moss;
mod qwen;
mod qwen2;
mod qwen3;

/// Every architecture. If several share a GGUF name, the first one reads the GGUF file.
pub static ARCHITECTURES: &[&Architecture] = &[
    &llama::LLAMA,
    &mistral::MISTRAL,
    &llama2c::LLAMA2C,
    &internlm::INTERNLM,
    &qwen2::QWEN2,
    &qwen::QWEN,
    &qwen3::QWEN3,
    &baichuan::BAICHUAN,
    &chatglm::CHATGLM,
    &chatglm1::CHATGLM1,
    &moss::MOSS,
];
