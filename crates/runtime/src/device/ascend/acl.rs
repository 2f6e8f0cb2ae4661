//! The vendor's interface, found at run time: one card, its memory, its streams, its operators. Calls into the
//! libraries stand here alone.
//!
//! ```text
//!  library.rs    the libraries, their functions by name, what they say of errors
//!  card.rs       one card: context, stream, facts
//!  memory.rs     bytes of the card, and of the host where cards reach them; freed when dropped
//!  staging.rs    bytes to the card and back;  event.rs: what was asked for before;  peer.rs: from card to card
//!  array.rs      what an operator is given: elements on the card, numbers, lists
//!  operators.rs  the operators, one line each: name and arguments
//!  queue.rs      an operator's two calls, and the room that it asks for between them;  graph.rs: operators that are kept, and asked for as one
//! ```

mod array;
mod card;
mod event;
mod graph;
mod library;
mod memory;
mod operators;
mod peer;
mod queue;
mod staging;
mod virtual_memory;

pub use array::{Array, Scalar, Type};
pub use card::Card;
pub use graph::Graph;
pub use library::{Library, Settings, Source};
pub use memory::Allocation;
pub use operators::Attention;
pub use peer::Link;
pub use queue::{Queue, Spare};
pub use staging::Transfers;
pub use virtual_memory::Reservation;
