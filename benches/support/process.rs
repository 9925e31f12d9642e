//! Processes: started with a clean environment, looked at through `/proc`, gone when dropped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::{Result, cores};

/// Clock ticks per second in `/proc`: a constant of Linux's interface, whatever the kernel uses.
const TICKS_PER_SECOND: u64 = 100;
/// Where the user and system time stand in `/proc/PID/stat`, counted from the process's state.
const TIMES: [usize; 2] = [11, 12];
/// How long a process that was asked to stop may take.
const STOP_WITHIN: Duration = Duration::from_secs(15);
/// How often it is looked at meanwhile.
const STOP_POLL: Duration = Duration::from_millis(5);
/// How much of a failed process's log is shown.
const LAST_WORDS_BYTES: usize = 2_000;

/// A command for what is measured, with nothing of the surrounding shop's settings.
pub(super) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = cores::measured(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("VITRINA_") {
            command.env_remove(name);
        }
    }
    command
}

/// The `vitrina` binary, built with the same profile as this benchmark.
pub(super) fn vitrina(arguments: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_vitrina"));
    command.args(arguments);
    command
}

/// CPU time of all threads of a process so far.
pub(super) fn cpu_of(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold anything; what follows it is numbers.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let fields: Vec<&str> = fields.split(' ').collect();
    let mut ticks = 0;
    for index in TIMES {
        ticks += fields.get(index).ok_or("/proc/PID/stat is too short")?.parse::<u64>()?;
    }
    Ok(Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
}

/// A process that is killed when this is dropped.
pub(super) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command. Its log goes to a file, as a service's does.
    pub(super) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let out = File::create(log)?;
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::from(out)).spawn()?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// The same for one that says something, and ends when it is not listened to any more.
    pub(super) fn start_talking(command: &mut Command, log: &Path) -> Result<Self> {
        let out = File::create(log)?;
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.stderr(Stdio::from(out)).spawn()?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// CPU time of all its threads so far, those that have ended included.
    pub(super) fn cpu(&self) -> Result<Duration> {
        cpu_of(self.child.id())
    }

    /// A figure of its memory in bytes, by its name in `/proc/PID/status`; `None` once it is gone.
    pub(super) fn memory(&self, name: &str) -> Option<u64> {
        let status = self.proc_file("status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    }

    fn proc_file(&self, name: &str) -> std::io::Result<String> {
        fs::read_to_string(format!("/proc/{}/{name}", self.child.id()))
    }

    /// What it says on standard output, if it was started with [`Process::start_talking`].
    pub(super) fn output(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// Whether it has ended.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Asks it to stop and waits until it has: what it leaves behind is what a stopped service
    /// leaves behind.
    pub(super) async fn stop(mut self) -> Result<()> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-s", "TERM", &pid]).status()?;
        let gone = async {
            while self.child.try_wait()?.is_none() {
                tokio::time::sleep(STOP_POLL).await;
            }
            Ok(())
        };
        tokio::time::timeout(STOP_WITHIN, gone).await?
    }

    /// The end of its log, for the error of a process that failed.
    pub(super) fn last_words(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let start = log.len().saturating_sub(LAST_WORDS_BYTES);
        String::from_utf8_lossy(&log[start..]).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
