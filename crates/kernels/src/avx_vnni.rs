//! Variants for AVX2 with VNNI: products of codes without a detour over 16 bits. All else is that of AVX2.

pub mod dot_int8;
pub mod panel_product;
pub mod sub_block_product;
