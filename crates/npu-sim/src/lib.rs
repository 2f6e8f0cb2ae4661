//! The C interface of CANN (`aclrt*`, `aclCreate*`, `aclnn*`), computed on the processor.
//!
//! ```text
//!   a program in C --> surface/        names of libascendcl, libnnopbase, libopapi
//!                        |     |
//!                   world    operator   two phases: arguments are judged, then work is queued
//!                  stream    object     what handles stand for
//!                  memory    element    types, roundings
//!                   order    view       shapes and strides over addresses
//!                 finding    chip       what each chip has and lacks
//! ```
//!
//! Nothing links this library: programs open it as they open the vendor's, and it refuses what hardware refuses (with the vendor's codes and a sentence),
//! and reports what hardware would punish without a word: unordered accesses, memory freed under queued work, reads of bytes nobody wrote. It is no NPU:
//! speed and the last bit of a sum are not the hardware's.

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
