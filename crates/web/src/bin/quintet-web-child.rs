//! The launcher as a program of its own, for tests: the server has it as a
//! hidden subcommand.

fn main() -> std::process::ExitCode {
    quintet_scripts::launch::main(std::env::args_os().skip(1))
}
