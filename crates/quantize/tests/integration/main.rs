//! Recipes and the quantization of whole files.

mod importance;
mod on_grid;
mod recipes;
mod resume;
mod stream;
