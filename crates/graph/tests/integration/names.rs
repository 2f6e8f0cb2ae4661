//! Names of operators.

use trueup_graph::Op;

#[test]
fn functions_of_one_element_are_named_in_the_order_of_their_cases() {
    let mut tried: Vec<&str> = Vec::new();
    for case in Op::cases().iter().filter(|case| matches!(case.op, Op::Unary(_))) {
        if !tried.contains(&case.op.name()) {
            tried.push(case.op.name());
        }
    }
    let names: Vec<&str> = Op::names().into_iter().filter(|name| tried.contains(name)).collect();
    assert!(tried.len() > 20 && tried == names, "{tried:?}");
}
