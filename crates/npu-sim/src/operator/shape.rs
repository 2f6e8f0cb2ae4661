//! (empty yet)
