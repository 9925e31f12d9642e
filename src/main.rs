//! The `vitrina` command. All of it is in the library; see `vitrina::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    vitrina::cli::main()
}
