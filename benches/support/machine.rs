//! What the figures were measured on.

use std::fs;

/// One line for above the tables: version, profile, processors.
pub(crate) fn describe() -> String {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let model = fs::read_to_string("/proc/cpuinfo").ok().and_then(|info| {
        let line = info.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    format!(
        "Vitrina {}, {}; {processors} × {}",
        env!("CARGO_PKG_VERSION"),
        profile(),
        model.as_deref().unwrap_or("a processor that does not say its name"),
    )
}

/// The profile it was built with. The compiler does not tell a program, so the command line of the
/// cargo that started it has to.
fn profile() -> String {
    if cfg!(debug_assertions) {
        return "built WITHOUT optimisation: these figures mean nothing".to_owned();
    }
    let Some(arguments) = arguments_of_parent().filter(|all| all.iter().any(|a| a == "bench"))
    else {
        return "built with optimisation (not started by cargo: profile unknown)".to_owned();
    };
    let mut arguments = arguments.iter().take_while(|argument| *argument != "--");
    let mut profile = "bench".to_owned();
    while let Some(argument) = arguments.next() {
        if let Some(named) = argument.strip_prefix("--profile=") {
            named.clone_into(&mut profile);
        } else if argument == "--profile"
            && let Some(named) = arguments.next()
        {
            profile.clone_from(named);
        }
    }
    format!("profile {profile}")
}

fn arguments_of_parent() -> Option<Vec<String>> {
    let parent = std::os::unix::process::parent_id();
    let line = fs::read_to_string(format!("/proc/{parent}/cmdline")).ok()?;
    Some(line.split('\0').map(str::to_owned).collect())
}
