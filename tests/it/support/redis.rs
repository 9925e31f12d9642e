//! Real Redis servers for tests: the one that `VITRINA_TEST_REDIS` names (`scripts/test` starts
//! it), and private ones that a test may freeze and kill.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use vitrina::config::{CacheConfig, RedisConfig};

/// What a missing server means: it is said loudly, and fails in CI.
fn not_tested<T>(advice: &str) -> Option<T> {
    // `scripts/test --quick` leaves them out on purpose.
    let on_purpose = std::env::var_os("VITRINA_TEST_SKIP_SERVERS").is_some();
    assert!(on_purpose || std::env::var("CI").as_deref() != Ok("true"), "{advice}");
    eprintln!("\n*** NOT TESTED: {advice} ***\n");
    None
}

/// Reads the address of a Redis.
pub fn redis_config(url: &str) -> RedisConfig {
    match CacheConfig::parse(url).unwrap() {
        CacheConfig::Redis(config) => config,
        other => panic!("{url} is no Redis but {other:?}"),
    }
}

/// The Redis that tests share. Each uses a prefix of its own.
pub fn shared_redis() -> Option<RedisConfig> {
    match std::env::var("VITRINA_TEST_REDIS") {
        Ok(url) if !url.is_empty() => Some(redis_config(&url)),
        _ => not_tested("no Redis to test on: use scripts/test, or set VITRINA_TEST_REDIS"),
    }
}

/// A port that nobody listens on.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A Redis of one test; killed when it is dropped.
pub struct PrivateRedis {
    child: Child,
    port: u16,
}

impl PrivateRedis {
    /// Starts one on a free port. `None` where the machine has none and that is allowed.
    pub fn start(args: &[&str]) -> Option<Self> {
        Self::start_on(free_port(), args)
    }

    /// Starts one and waits until it is ready.
    pub fn start_on(port: u16, args: &[&str]) -> Option<Self> {
        if std::env::var_os("VITRINA_TEST_SKIP_SERVERS").is_some() {
            return not_tested("servers are left out");
        }
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", "no"]).args(args);
        let Ok(mut child) = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn() else {
            return not_tested("no redis-server on this machine: scripts/install-tools brings it");
        };
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.find(|line| line.as_ref().unwrap().contains("Ready to accept"));
        // The rest is read and dropped, so that the process is never blocked.
        std::thread::spawn(move || lines.for_each(drop));
        ready.expect("redis-server starts").unwrap();
        Some(Self { child, port })
    }

    pub fn config(&self) -> RedisConfig {
        redis_config(&format!("redis://127.0.0.1:{}", self.port))
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs a command with `redis-cli`; what it prints.
    pub fn command(&self, args: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        let output = command.args(["-p", &self.port.to_string()]).args(args).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops the process where it is: connections stay open and nobody answers.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }
}

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        // Also ends a process that is frozen.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
