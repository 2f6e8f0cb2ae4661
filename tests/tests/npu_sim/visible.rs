//! `ASCEND_RT_VISIBLE_DEVICES`: the vendor's runtime hides cards by it, and so does the simulator; the device counts
//! those that are left.

use std::process::Command;
use trueup::runtime::Error;
use trueup::runtime::device::Device;

/// The part that counts, in a process for each list.
pub const COUNTED: &str = "counted";

/// Lists, and what is said of the cards, of four, that they leave.
const LISTS: [(&str, Option<&str>, &str); 6] = [
    ("ASCEND_RT_VISIBLE_DEVICES", None, "4 cards: expected a card from 0 to 3, found card 4"),
    ("ASCEND_RT_VISIBLE_DEVICES", Some("1,3"), "2 cards: expected a card from 0 to 1, found card 2"),
    ("ASCEND_RT_VISIBLE_DEVICES", Some("0,2, 3"), "2 cards: expected a card from 0 to 1, found card 2"),
    ("ASCEND_RT_VISIBLE_DEVICES", Some("2,1,0"), "1 cards: expected card 0, the only one, found card 1"),
    ("ASCEND_RT_VISIBLE_DEVICES", Some("4"), "0 cards: "),
    // Of the container's runtime: it gives a container its cards, and nothing in it reads the list.
    ("ASCEND_VISIBLE_DEVICES", Some("1"), "4 cards: expected a card from 0 to 3, found card 4"),
];

/// Opens cards until there is none, and says how many there were.
pub fn counted<D: Device>(open: impl Fn(usize) -> Result<D, Error>) {
    let mut count = 0;
    let problem = loop {
        match open(count) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    println!("{count} cards: {problem}");
}

/// What is not right.
pub fn visible() -> Vec<String> {
    let program = std::env::current_exe().expect("the test's own path");
    let wrong = |(variable, list, expected): &(&str, Option<&str>, &str)| {
        let mut command = Command::new(&program);
        command.args(["--part", COUNTED]);
        ["ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES"].into_iter().for_each(|variable| {
            command.env_remove(variable);
        });
        let output = command.envs(list.map(|list| (*variable, list))).output().expect("the test starts itself");
        let said = String::from_utf8_lossy(&output.stdout);
        let [count, problem] = expected.split(": ").collect::<Vec<_>>()[..] else { return Some(expected.to_string()) };
        let is_told = said.starts_with(count) && said.contains(problem) && output.status.success();
        (!is_told).then(|| format!("{variable}={list:?}: {said}, not {expected}"))
    };
    let wrong: Vec<String> = LISTS.iter().filter_map(wrong).collect();
    println!("npu-sim, simulated: {} lists of cards, {} wrong", LISTS.len(), wrong.len());
    wrong
}
