//! `quintet hooks`: Lua hooks without a server.

use std::io::{Write as _, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use quintet_hooks::{Event, Limits, Program};
use quintet_trial::{run_once, run_tests};
use quintet_types::Ms;

/// Commands about hooks
#[derive(clap::Subcommand)]
pub(super) enum Hooks {
    /// Load a hook file, or a directory of them, and list its events.
    #[command(
        after_help = "Examples:\n  quintet hooks check hooks.lua\n  quintet hooks check hooks"
    )]
    Check {
        /// The file or directory.
        path: PathBuf,
    },
    /// Run one event on an empty engine and print the results.
    Run(RunHook),
    /// Run the tests of a directory: `tests/NAME.lua` tests `NAME.lua`.
    #[command(after_help = "Example:\n  quintet hooks test examples/hooks")]
    Test {
        /// The directory of the hook files.
        dir: PathBuf,
    },
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet hooks run hooks.lua --event before_put --message hello\n  \
                  quintet hooks run hooks --event timer"
)]
pub(super) struct RunHook {
    /// The hook file or directory.
    path: PathBuf,
    /// Name of the event, such as before_put. `timer` runs the next timer; `added_command` runs the
    /// message as a command line.
    #[arg(long)]
    event: String,
    /// Body of the message.
    #[arg(long, default_value = "")]
    message: String,
    /// Queue of the message.
    #[arg(long, default_value = "default")]
    queue: String,
}

impl Hooks {
    pub(super) fn run(self) -> Result<ExitCode> {
        match self {
            Hooks::Check { path } => {
                let program = load(&path)?;
                let names = Event::ALL
                    .into_iter()
                    .filter(|event| program.events().has(*event))
                    .map(Event::name)
                    .collect::<Vec<_>>();
                if names.is_empty() {
                    writeln!(stdout(), "loaded; it has no function for any event")?;
                } else {
                    writeln!(stdout(), "loaded; events: {}", names.join(" "))?;
                }
                Ok(ExitCode::SUCCESS)
            }
            Hooks::Run(run) => run.run(),
            Hooks::Test { dir } => test(&dir),
        }
    }
}

fn load(path: &Path) -> Result<Arc<Program>> {
    Ok(Program::load(path, &Limits::default(), Arc::default())?)
}

impl RunHook {
    fn run(self) -> Result<ExitCode> {
        let event = Event::from_any_name(&self.event).ok_or_else(|| {
            let names: Vec<&str> = Event::ALL.iter().map(|event| event.name()).collect();
            anyhow!(
                "there is no event {:?}; events are {}",
                self.event,
                names.join(" ")
            )
        })?;
        if self.queue.is_empty() || self.queue.len() > 65_535 {
            bail!("a queue's name has 1 to 65535 bytes");
        }
        let program = load(&self.path)?;
        if !program.events().has(event) {
            eprintln!("note: there is no function for {}", event.name());
        }
        let now = quintet_host::wall_ms();
        let message = self.message.as_bytes();
        let output = run_once(program, event, &self.queue, message, Ms(now))?;
        write!(stdout(), "{output}")?;
        Ok(ExitCode::SUCCESS)
    }
}

fn test(dir: &Path) -> Result<ExitCode> {
    let folder = dir.join("tests");
    let mut tests = Vec::new();
    let entries = std::fs::read_dir(&folder).with_context(|| {
        let dir = dir.display();
        format!("cannot read {dir}/tests, the folder with the tests of the hooks in {dir}")
    })?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "lua") {
            tests.push(path);
        }
    }
    tests.sort();
    if tests.is_empty() {
        bail!("{} has no *.lua file", folder.display());
    }
    let (mut passed, mut failed) = (0, 0);
    for path in tests {
        let name = path.file_name().unwrap_or_default();
        let shown = name.to_string_lossy();
        match run_tests(&dir.join(name), &path) {
            Ok(results) => {
                for result in results {
                    match result.failed {
                        None => passed += 1,
                        Some(error) => {
                            failed += 1;
                            writeln!(stdout(), "{shown}: {}: FAILED\n  {error}", result.name)?;
                        }
                    }
                }
            }
            Err(error) => {
                failed += 1;
                writeln!(stdout(), "{shown}: FAILED\n  {error}")?;
            }
        }
    }
    writeln!(stdout(), "{passed} passed, {failed} failed")?;
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}
