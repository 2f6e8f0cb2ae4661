//! Devices, sessions and plans as callers of the crate use them.

mod indices;
mod operators;
mod session;
mod tiny_model;
mod views;
