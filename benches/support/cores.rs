//! A core for what is measured, where that is asked for: everything else has the others.
//!
//! Servers and loops that are measured are then not taken off their core by the load generator and the
//! cluster, and none of their threads waits for another on a core that is asleep.

use std::ffi::OsStr;
use std::process::Command;

use super::Result;

/// The variable that asks for it.
const PIN: &str = "VITRINA_BENCH_PIN";
/// The core of what is measured.
const MEASURED: usize = 0;

/// Whether it is asked for.
pub(super) fn are_apart() -> bool {
    std::env::var_os(PIN).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Has this process, the load generator, leave the measured core alone.
pub(super) fn leave_measured() -> Result<()> {
    if are_apart() { keep_off(std::process::id()) } else { Ok(()) }
}

/// Has a process leave the measured core alone, with all its threads.
pub(super) fn keep_off(pid: u32) -> Result<()> {
    move_to(&others()?, pid)
}

/// Has a process use all cores again.
pub(super) fn give_back(pid: u32) -> Result<()> {
    move_to(&format!("0-{}", all()?.saturating_sub(1)), pid)
}

fn move_to(cores: &str, pid: u32) -> Result<()> {
    let moved = Command::new("taskset").args(["-acp", cores, &pid.to_string()]).output()?;
    if moved.status.success() {
        return Ok(());
    }
    Err(format!("taskset: {}", String::from_utf8_lossy(&moved.stderr)).into())
}

/// A command for what is measured.
pub(super) fn measured(program: impl AsRef<OsStr>) -> Command {
    if !are_apart() {
        return Command::new(program);
    }
    let mut command = Command::new("taskset");
    command.args(["-c", &MEASURED.to_string()]).arg(program);
    command
}

fn others() -> Result<String> {
    match all()?.saturating_sub(1) {
        MEASURED => Err(format!("{PIN} needs a second core").into()),
        last => Ok(format!("{}-{last}", MEASURED + 1)),
    }
}

/// Cores of the machine, also those that this process leaves alone.
fn all() -> Result<usize> {
    let told = Command::new("nproc").arg("--all").output()?;
    Ok(String::from_utf8(told.stdout)?.trim().parse()?)
}
