//! Recipes and the quantization of whole files.

mod on_grid;
mod recipes;
mod resume;
mod stream;
