//! The prefetch strategy of the process.

use trueup_kernels::{Isa, Prefetch};

#[test]
fn set_changes_the_current_strategy() {
    for strategy in Prefetch::STRATEGIES {
        strategy.set();
        assert_eq!(Prefetch::current(), strategy);
    }
    assert!(!Prefetch::is_used_by(Isa::Scalar));
}
