//! Checkpoint to GGUF: rename, transform, describe, check.
