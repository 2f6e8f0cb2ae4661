//! A failing input cut smaller: fields are taken away, then bytes, for as long as it fails in the same way.

use std::time::{Duration, Instant};
use trueup_tests::fuzz::Target;
use trueup_tests::fuzz::node::Node;

/// Time that a failure is worth.
const PATIENCE: Duration = Duration::from_secs(20);

/// The smallest input found that still fails.
pub fn shrink(target: &Target, input: &[u8], fails: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let until = Instant::now() + PATIENCE;
    let mut small = input.to_vec();
    loop {
        let before = small.len();
        small = without_fields(target, small, &fails, until);
        small = without_bytes(small, &fails, until);
        if small.len() == before || Instant::now() > until {
            return small;
        }
    }
}

/// Takes items out of lists, many at once first.
fn without_fields(target: &Target, input: Vec<u8>, fails: &impl Fn(&[u8]) -> bool, until: Instant) -> Vec<u8> {
    let mut tree = (target.grammar)(&input);
    if tree.bytes() != input {
        return input;
    }
    let mut list = 0;
    while let Some(count) = items(&mut tree, &mut list.clone()).map(|items| items.len()) {
        let mut size = count;
        while size > 0 && Instant::now() < until {
            let mut start = 0;
            while let Some(length) =
                items(&mut tree, &mut list.clone()).map(|items| items.len()).filter(|length| start < *length)
            {
                let mut smaller = tree.clone();
                if let Some(items) = items(&mut smaller, &mut list.clone()) {
                    items.drain(start..(start + size).min(length));
                }
                if fails(&smaller.bytes()) {
                    tree = smaller;
                } else {
                    start += size;
                }
            }
            size /= 2;
        }
        list += 1;
        if Instant::now() > until {
            break;
        }
    }
    tree.bytes()
}

/// The list of that number, counted from the root on.
fn items<'a>(node: &'a mut Node, number: &mut usize) -> Option<&'a mut Vec<Node>> {
    for list in node.lists() {
        if *number == 0 {
            return Some(list);
        }
        *number -= 1;
        for item in list {
            if let Some(found) = items(item, number) {
                return Some(found);
            }
        }
    }
    None
}

fn without_bytes(mut input: Vec<u8>, fails: &impl Fn(&[u8]) -> bool, until: Instant) -> Vec<u8> {
    let mut size = input.len() / 2;
    while size > 0 && Instant::now() < until {
        let mut start = 0;
        while start < input.len() && Instant::now() < until {
            let end = (start + size).min(input.len());
            let smaller = [&input[..start], &input[end..]].concat();
            if fails(&smaller) {
                input = smaller;
            } else {
                start = end;
            }
        }
        size /= 2;
    }
    input
}
