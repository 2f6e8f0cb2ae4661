//! The searches with a group in each lane. The declaration needs an attribute. NEON is always enabled, so this
//! one only keeps long functions from being copied into their callers.

searches! { [inline(never)], crate::neon::lanes::Neon }
