//! Bounds on what a chat template can build.
