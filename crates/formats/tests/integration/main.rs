//! Readers and writers of every format, with sound and damaged files.

mod atomic_file;
mod gguf;
mod gguf_hostile;
mod gguf_resume;
mod json;
mod llama2c;
mod modules;
mod open;
mod safetensors;
mod split_scale;
mod support;
mod trace;
