//! The searches with a group in each lane.

searches! { [inline(never)], crate::neon::lanes::Neon }
