use std::io::ErrorKind;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

/// Runs a program that was just written. Another thread may have started a process while the file was open for writing:
/// until that process executes its program, this one is busy.
pub fn run_written(command: &mut Command) -> Output {
    loop {
        match command.output() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => thread::sleep(Duration::from_millis(10)),
            ended => return ended.expect("the copy is started"),
        }
    }
}
