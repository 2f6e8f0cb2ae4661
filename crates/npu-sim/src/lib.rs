//! The C interface of CANN (`aclrt*`, `aclCreate*`, `aclnn*`), computed on the processor.
//!
//! ```text
//!   a C program --> surface/         names of libascendcl, libnnopbase, libopapi
//!                        |     |
//!                   world    operator   two phases: arguments are validated, then work is queued
//!                  stream    object     what handles refer to
//!                  memory    element    types, rounding
//!                   order    view       shapes and strides over addresses
//!                 finding    chip       features of each chip
//! ```
//!
//! No program links this library; programs open it in place of the vendor's libraries. It computes with the precision
//! of the simulated chip and executes work asynchronously. It rejects what hardware rejects, with the vendor's error
//! codes and a message, and reports errors that hardware would not report: unordered accesses, memory freed under
//! queued work, reads of unwritten bytes. It says nothing about the speed of hardware or the last bit of a sum. Any C
//! program that calls CANN can use it.

mod capture;
mod chip;
mod element;
mod event;
mod finding;
mod memory;
mod object;
mod operator;
mod order;
mod settings;
mod status;
mod stream;
mod surface;
mod trace;
mod view;
mod world;
