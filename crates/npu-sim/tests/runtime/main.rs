//! The runtime, called as a program in C calls it: each refusal and each finding is made once, beside a right twin that
//! passes.

mod capture;
mod device;
mod drawn;
mod event;
mod library;
mod memory;
mod order;
mod program;
mod stories;
mod virtual_memory;
