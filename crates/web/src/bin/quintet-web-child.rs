//! The launcher and the built-in scripts as a program of its own, for tests:
//! the server has them as hidden subcommands.

fn main() -> std::process::ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_ref().and_then(|word| word.to_str()) {
        Some("script") => {
            let name = args.next().unwrap_or_default();
            let hosts = args.next().unwrap_or_default();
            quintet_rq::builtin::main(&name.to_string_lossy(), &hosts.to_string_lossy(), "")
        }
        _ => quintet_scripts::launch::main(args),
    }
}
