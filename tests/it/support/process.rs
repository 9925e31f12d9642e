//! The `vitrina` binary as a process, for tests that kill it or look at it from outside.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use super::http::HttpClient;
use super::server::SECRET;

/// A command of the binary with nothing of the surrounding environment's settings. `VITRINA_TEST_BIN`
/// names another one than that of this build: `scripts/fire` measures what people run.
pub fn vitrina(args: &[&str]) -> Command {
    let other = std::env::var_os("VITRINA_TEST_BIN");
    let mut command = Command::new(other.unwrap_or(env!("CARGO_BIN_EXE_vitrina").into()));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("VITRINA_") {
            command.env_remove(name);
        }
    }
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap()
}

/// A serving process; killed when it is dropped.
pub struct ServerProcess {
    pub http: HttpClient,
    pub base: String,
    child: Child,
}

impl ServerProcess {
    /// Starts `vitrina serve` on a folder and a free port, and waits until it greets.
    pub fn start(dir: &Path, args: &[&str]) -> Self {
        let store = format!("embedded:{}", dir.display());
        Self::start_on(&store, args)
    }

    /// Starts `vitrina serve` on any store.
    pub fn start_on(store: &str, args: &[&str]) -> Self {
        let mut command = vitrina(&["serve", "--listen", "127.0.0.1:0", "--store", store]);
        Self::spawn(command.args(args).env("VITRINA_JWT_SECRET", SECRET))
    }

    /// Starts `vitrina serve` on any store, with settings that only tests have.
    pub fn start_with(store: &str, settings: &[(&str, &str)]) -> Self {
        let mut command = vitrina(&["serve", "--listen", "127.0.0.1:0", "--store", store]);
        command.args(["--no-demo"]).env("VITRINA_JWT_SECRET", SECRET);
        Self::spawn(command.envs(settings.iter().copied()))
    }

    /// Starts `vitrina serve` as a newcomer does, without a secret.
    pub fn start_demo(dir: &Path) -> Self {
        let store = format!("embedded:{}", dir.display());
        Self::spawn(&mut vitrina(&["serve", "--listen", "127.0.0.1:0", "--store", &store]))
    }

    /// Starts a command that serves, and waits until it greets.
    pub fn spawn(command: &mut Command) -> Self {
        Self::spawn_with_log(command, Stdio::null())
    }

    /// The same, with its log in a place of its own.
    pub fn spawn_with_log(command: &mut Command, log: impl Into<Stdio>) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| {
            let line = line.unwrap();
            let url = line.strip_prefix("GraphQL")?.split_whitespace().next()?;
            Some(url.trim_end_matches("/graphql").to_owned())
        });
        // The rest of the greeting is read and dropped, so that the process is never blocked.
        std::thread::spawn(move || lines.for_each(drop));
        let base = address.expect("the server greets with its address");
        Self { http: HttpClient::new(&base), base, child }
    }

    /// Starts a server on a store that is away, and waits until it listens: it greets when it is open.
    pub async fn start_waiting(store: &str, log: impl Into<Stdio>) -> Self {
        let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = vitrina(&["serve", "--listen", &listen.to_string(), "--store", store]);
        command.args(["--cache", "off"]).env("VITRINA_JWT_SECRET", SECRET);
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let base = format!("http://{listen}");
        let mut server = Self { http: HttpClient::new(&base), base, child };
        while TcpStream::connect(listen).is_err() {
            assert!(server.child.try_wait().unwrap().is_none(), "it waits, it does not end");
            tokio::task::yield_now().await;
        }
        server
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal by its name (`TERM`, `STOP`, …).
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Waits for the process to end by itself; whether it did in time.
    pub async fn ends_within(&mut self, time: std::time::Duration) -> bool {
        let ended = async {
            while self.child.try_wait().unwrap().is_none() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(time, ended).await.is_ok()
    }

    /// Waits for the process to end by itself; its exit code.
    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Memory in use, in bytes.
    pub fn memory(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most memory that was in use at any moment so far, in bytes.
    pub fn peak_memory(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// How long its threads have worked so far, to a hundredth of a second.
    pub fn cpu(&self) -> std::time::Duration {
        cpu_of(self.pid())
    }

    fn status(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
    }
}

/// How long the threads of a process have worked so far. The system counts in hundredths of a second.
pub fn cpu_of(pid: u32) -> std::time::Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // User and system time, counted after the name, which may have any characters.
    let after_name = stat.rsplit_once(')').unwrap().1;
    let ticks = after_name.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().unwrap());
    std::time::Duration::from_millis(ticks.sum::<u64>() * 10)
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
