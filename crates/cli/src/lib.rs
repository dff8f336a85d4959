//! The command line: what it takes, and all that it does but running the server.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]
#![cfg_attr(
    not(feature = "cluster"),
    allow(dead_code, unused_imports, reason = "what only nodes of a cluster use")
)]

mod api;
mod attention;
mod audit;
mod auth;
mod backup;
mod check;
mod client;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "cluster")]
mod demo;
#[cfg(all(test, feature = "cluster"))]
mod documented_tests;
mod drop;
mod events;
mod export;
#[cfg(feature = "cluster")]
mod handover;
mod hooks;
mod import;
mod man;
mod mess;
mod messages;
mod nearest;
#[cfg(feature = "cluster")]
mod node;
mod progress;
mod records;
mod remote;
mod rq;
mod runs;
mod script_files;
mod serve;
mod settings;
mod show;
mod table;
mod tail;
mod top;
mod verbs;
#[cfg(feature = "cluster")]
mod ways;

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Termination as _};

use clap::{CommandFactory as _, Parser, Subcommand};
use quintet_config::{ADMIN_SOCKET, CommandLine, Config};

use api::Api;

/// One small, durable, fast queue server that speaks many protocols.
#[derive(Parser)]
#[command(name = "quintet", version, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  quintet serve                                  serve every protocol, data in ./data
  quintet serve --listen memcache=:22133 --sync 50ms
  echo hello | quintet put work                  put a message
  quintet take work                              take a message, print and remove it
  quintet stats --json                           statistics of the running server
  quintet check --data data                      verify the data directory
  quintet check --config quintet.toml            verify the configuration before a start
  quintet export work --output work.jsonl        write a queue to a file for `quintet import`
  quintet bench --connections 200                measure the rate and latency of the server";

#[derive(Subcommand)]
enum Command {
    /// Run the server.
    Serve(serve::Serve),
    /// Put a message into a queue of the running server.
    Put(On<messages::Put>),
    /// Take messages from a queue, print them and remove them.
    Take(On<messages::Take>),
    /// Print a message without taking it.
    Peek(On<messages::Peek>),
    /// Wait until the server responds.
    Wait(On<verbs::Wait>),
    /// Print statistics of the running server, or of one queue.
    Stats(On<show::Stats>),
    /// Print all metrics of the running server in the Prometheus format.
    Metrics(On<show::Metrics>),
    /// List queues that need attention: they lose messages, fail, grow or have no consumers.
    Attention(On<attention::Attention>),
    /// List the queues of the running server.
    Queues(On<show::Queues>),
    /// Print the effective settings of the running server, or of one queue.
    Settings(On<settings::Settings>),
    /// Change settings of a queue while the server runs.
    Set(On<settings::Set>),
    /// Watch and control queues: rates, ages, connections.
    Top(On<top::Top>),
    /// Print the events of a queue as they happen, without taking messages.
    Tail(On<tail::Tail>),
    /// Print the events of messages from the server's log, from any position.
    Events(On<events::Events>),
    /// Drop queues of the running server by name or pattern.
    Drop(On<drop::Drop>),
    /// Move messages of the running server to another queue.
    Move(On<verbs::Move>),
    /// Copy the puts of a queue to other queues, or list these queues.
    Fanout(On<verbs::Fanout>),
    /// List the messages of a queue without taking them.
    Browse(On<verbs::Browse>),
    /// List the reserved messages and their holders, or end leases.
    Leases(On<verbs::Leases>),
    /// List the connections of the server, or close one.
    Clients(On<verbs::Clients>),
    /// List the worker processes of the faktory protocol, or ask workers to be quiet or to end.
    Workers(On<verbs::Workers>),
    /// Show the state of a message, or its outcome after it is gone.
    Trace(On<verbs::Trace>),
    /// Show the outcome of tracked messages by their names.
    Track(On<verbs::Track>),
    /// List, create, commit or forget batches of messages.
    Batch(On<verbs::Batch>),
    /// List, create, change, remove, pause, resume or run schedules.
    #[command(alias = "cron")]
    Schedule(On<verbs::Schedule>),
    /// Remove the waiting messages of a queue.
    Purge(On<verbs::Purge>),
    /// Cancel messages, reserved messages included.
    Cancel(On<verbs::Cancel>),
    /// Make buried or delayed messages ready.
    Kick(On<verbs::Kick>),
    /// Retry failed messages: buried messages and dead letters.
    Retry(On<verbs::Retry>),
    /// Send dead letters back to the queues they came from.
    Redrive(On<verbs::Redrive>),
    /// Remove messages by their ids.
    Delete(On<verbs::Delete>),
    /// Change a message: priority, delay, body.
    Edit(On<verbs::Edit>),
    /// Pause a queue: takes wait, puts continue.
    Pause(On<verbs::Pause>),
    /// End the pause of a queue.
    Resume(On<verbs::Resume>),
    /// Hold the messages of a queue or key for a time, or list the held keys of a queue.
    Hold(On<verbs::Hold>),
    /// Make the server reject puts.
    Drain(On<verbs::Drain>),
    /// Make the server accept puts again.
    Undrain(On<verbs::Undrain>),
    /// Make the server read its configuration again.
    Reload(On<verbs::Reload>),
    /// Verify a data directory, or check a configuration file.
    Check(check::Check),
    /// Repair a damaged data directory, so that a server can open it.
    Repair(check::Repair),
    /// Copy a data directory, even while a server uses it.
    Backup(backup::Backup),
    /// Write the messages of queues to a file.
    Export(On<export::Export>),
    /// Put the messages of a file, or of another queue server.
    Import(import::Import),
    /// RQ's command line: queue scripts and their messages.
    Rq(rq::Rq),
    /// Send a server a load, and print its rate and latency.
    Bench(quintet_bench::Args),
    /// Run a server with faults, to try alerts, `top` and the console.
    #[command(subcommand, after_help = "Example:\n  quintet demo mess")]
    Demo(mess::Demo),
    /// Try Lua hooks without a server: check, run, test.
    #[command(subcommand, after_help = "Example:\n  quintet hooks check hooks.lua")]
    Hooks(hooks::Hooks),
    /// Hash a password for the configuration.
    Passwd(auth::Passwd),
    /// Create a token for a user.
    Token(auth::NewTokenFor),
    /// Print the audit log: changes on the server, with their users and results.
    Audit(audit::Audit),
    /// Show and control a cluster.
    #[cfg(feature = "cluster")]
    #[command(
        subcommand,
        after_help = "Examples:\n  quintet cluster status\n  quintet cluster demo"
    )]
    Cluster(cluster::Cluster),
    /// Write the manual: one page, or a page for each command into a directory.
    Man(man::Man),
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example:\n  quintet completions bash > ~/.local/share/bash-completion/completions/quintet"
    )]
    Completions {
        /// Shell to complete for.
        shell: clap_complete::Shell,
    },
}

/// A command to the running server.
#[derive(clap::Args)]
struct On<T: clap::Args> {
    #[command(flatten)]
    at: Where,
    #[command(flatten)]
    does: T,
}

/// Where the server is.
#[derive(clap::Args, Clone)]
struct Where {
    /// Data directory of the server [default: the first with a server of ./data,
    /// $XDG_RUNTIME_DIR/quintet, /run/quintet, /var/lib/quintet; else http://127.0.0.1:3333].
    #[arg(long, value_name = "DIR", env = "QUINTET_DATA")]
    data: Option<PathBuf>,
    /// True: the default address of HTTP is not tried.
    #[arg(skip)]
    only_sockets: bool,
    /// Print the server's address.
    #[arg(short, long)]
    verbose: bool,
    /// Control socket of the server, if it is outside the data directory.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Remote server: https://HOST:PORT of its listener "http" with TLS; on this machine also
    /// http://127.0.0.1:PORT.
    #[arg(
        long,
        visible_alias = "host",
        value_name = "ADDR",
        env = "QUINTET_SERVER",
        conflicts_with = "socket"
    )]
    server: Option<String>,
    /// CA certificates for the server, or its own certificate [default: the system's CAs].
    #[arg(long, value_name = "FILE", env = "QUINTET_CA")]
    ca: Option<PathBuf>,
    /// Client certificate.
    #[arg(long, value_name = "FILE", env = "QUINTET_CERT")]
    cert: Option<PathBuf>,
    /// Key of the client certificate.
    #[arg(long, value_name = "FILE", env = "QUINTET_KEY")]
    key: Option<PathBuf>,
    /// Log in as this user, with the token or password of --token-file or in QUINTET_TOKEN.
    #[arg(long, value_name = "NAME", env = "QUINTET_USER")]
    user: Option<String>,
    /// File with the token or password; `-`: standard input.
    #[arg(long, value_name = "FILE", requires = "user")]
    token_file: Option<PathBuf>,
}

impl Where {
    /// The data directories in which the server's socket is looked for, the likeliest first.
    fn directories(&self) -> Vec<PathBuf> {
        directories(self.data.as_ref())
    }

    /// The data directory that is named, or the first with a server that listens, or `./data`.
    fn data(&self) -> PathBuf {
        with_listener(self.directories(), ADMIN_SOCKET)
    }
}

/// The first of these directories with a server that listens on this socket, or the first.
fn with_listener(mut all: Vec<PathBuf>, socket: &str) -> PathBuf {
    let listens = |dir: &PathBuf| UnixStream::connect(dir.join(socket)).is_ok();
    let found = all.iter().position(listens).unwrap_or(0);
    all.swap_remove(found)
}

/// The directory that is named, or those that a server usually has, the likeliest first.
fn directories(named: Option<&PathBuf>) -> Vec<PathBuf> {
    if let Some(data) = named {
        return vec![data.clone()];
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let mut all = vec![PathBuf::from("data")];
    all.extend(runtime.map(|runtime| runtime.join("quintet")));
    all.extend(["/run/quintet", "/var/lib/quintet"].map(PathBuf::from));
    all
}

/// Runs the server with this configuration, which the command line gives so, until it stops.
pub type RunServer = fn(Config, CommandLine) -> anyhow::Result<()>;

/// The errors with which the server would refuse to start with this configuration of this file.
pub type CheckServer = fn(&Config, Option<&Path>) -> Vec<anyhow::Error>;

/// Does what the command line says.
pub fn run(server: RunServer, check: CheckServer) -> ExitCode {
    if rq::is_named() {
        return ended(rq::run(std::env::args_os().skip(1).collect()));
    }
    match command_line() {
        Ok(cli) => ended(obey(cli.command, server, check)),
        Err(code) => code,
    }
}

/// Reads the command line. An error, a help page or the version is printed, and the exit code is
/// returned.
fn command_line() -> Result<Cli, ExitCode> {
    if let Some(serve) = serve::Serve::alone(std::env::args_os().skip(1)) {
        let command = Command::Serve(serve);
        return Ok(Cli { command });
    }
    Cli::try_parse().map_err(|error| {
        let Some(text) = of_number(&error.to_string()) else {
            error.exit();
        };
        eprint!("{text}");
        ExitCode::from(2)
    })
}

/// The error for a number, if it is one, with the range that the option takes.
fn of_number(error: &str) -> Option<String> {
    // ": 0 is not in 1..=100"
    if let Some((before, range)) = error.split_once(" is not in ")
        && let Some((least, most)) = range.split_once("..=")
        && let Some((before, _)) = before.rsplit_once(": ")
    {
        return Some(format!("{before}: takes a number from {least} to {most}"));
    }
    // The range that the option has is not in these.
    [
        ("invalid digit found in string", "takes a whole number"),
        (
            "cannot parse integer from empty string",
            "takes a whole number",
        ),
        (
            "number too large to fit in target type",
            "the number is too large",
        ),
        (
            "number too small to fit in target type",
            "the number is too small",
        ),
    ]
    .iter()
    .find(|(text, _)| error.contains(text))
    .map(|(text, replacement)| error.replace(text, replacement))
}

fn obey(command: Command, server: RunServer, check: CheckServer) -> anyhow::Result<ExitCode> {
    macro_rules! run {
        ($($name:ident)*; with_api $($on:ident)*; with_place $($at:ident)*) => {
            match command {
                $(Command::$name(command) => command.run().map(|done| done.report()),)*
                $(Command::$on(On { at, does }) => {
                    does.run(Api::connect(&at)?).map(|done| done.report())
                })*
                $(Command::$at(On { at, does }) => does.run(at).map(|done| done.report()),)*
                Command::Serve(command) => command.run(server),
                Command::Check(command) => command.run(check),
                #[cfg(feature = "cluster")]
                Command::Cluster(command) => command.run(),
                Command::Completions { shell } => {
                    // It panics when a write fails.
                    let mut script = Vec::new();
                    clap_complete::generate(shell, &mut Cli::command(), "quintet", &mut script);
                    std::io::stdout().lock().write_all(&script)?;
                    Ok(ExitCode::SUCCESS)
                }
            }
        };
    }
    run!(
        Repair Backup Import Rq Bench Demo Hooks Passwd Token Audit Man;
        with_api Take Peek Stats Metrics Queues Settings Set Events Drop Move Fanout Browse Track
        Purge Cancel Kick Retry Redrive Delete Pause Resume Hold Drain Undrain Reload Export;
        with_place Put Wait Attention Top Tail Leases Clients Workers Trace Batch Schedule Edit
    )
}

/// Says what went wrong, if something did.
fn ended(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        // The reader of our output has had enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quintet: {error:#}");
            match error.is::<records::BadInput>() {
                true => ExitCode::from(check::DAMAGED),
                false => ExitCode::FAILURE,
            }
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn the_help_of_events_names_all_kinds() {
        let mut all = super::Cli::command();
        let events = all.find_subcommand_mut("events").expect("a command");
        let help = events.render_help().to_string();
        let words: Vec<&str> = help.split(|c: char| !c.is_alphanumeric()).collect();
        for kind in quintet_client::EventKind::ALL.map(quintet_client::EventKind::name) {
            assert!(words.contains(&kind), "{kind}");
        }
    }

    #[test]
    fn an_option_that_would_have_no_effect_is_an_error() {
        let read = |words: &str| {
            let read = super::Cli::command().try_get_matches_from(words.split(' '));
            read.map(drop).map_err(|error| error.kind())
        };
        let conflict = Err(clap::error::ErrorKind::ArgumentConflict);
        for command in ["cancel", "kick", "retry", "redrive", "move to"] {
            let one = format!("quintet {command} --id 7");
            assert_eq!(read(&format!("{one} --json --yes")), Ok(()), "{one}");
            for more in [
                "--contains x",
                "--with-key x",
                "--name x",
                "--attr x=y",
                "--batch x",
                "--older 1s",
                "--max 1",
                "--dry-run",
            ] {
                assert_eq!(read(&format!("{one} {more}")), conflict, "{one} {more}");
            }
        }
        for words in [
            "cancel --id 7 --state ready",
            "kick --id 7 --state buried",
            "redrive --id 7 --state ready",
            "move to --id 7 --state ready",
            "peek --id 7 --state ready",
            "schedule put s --file f --at 2030-01-01T00:00:00Z",
            "schedule put s --file f --start 2030-01-01T00:00:00Z",
            "schedule put s --file f --end 2030-01-01T00:00:00Z",
            "schedule put s --file f --count 1",
            "schedule put s --file f --missed once",
            "schedule put s --file f --overlap skip",
            "schedule put s --file f --attr x=y",
            "schedule put s --file f --priority 1",
            "schedule put s --file f --delay 1s",
            "schedule put s --file f --ttl 1s",
            "schedule put s --file f --with-key x",
        ] {
            assert_eq!(read(&format!("quintet {words}")), conflict, "{words}");
        }
        assert_eq!(read("quintet peek --id 7 --json"), Ok(()));
        assert_eq!(read("quintet schedule put s --file f --json"), Ok(()));
    }

    #[test]
    fn the_error_for_a_number_says_which_numbers_an_option_takes() {
        for (words, says) in [
            (
                "quintet take work --count x",
                "invalid value 'x' for '--count <COUNT>': takes a whole number\n",
            ),
            (
                "quintet put work --priority urgent",
                "invalid value 'urgent' for '--priority <PRIORITY>': takes a whole number\n",
            ),
            (
                "quintet take work --count 0",
                "invalid value '0' for '--count <COUNT>': takes a number from 1 to 4294967295\n",
            ),
            (
                "quintet tail work --count 99999999999999999999",
                ": the number is too large\n",
            ),
        ] {
            let error = super::Cli::command()
                .try_get_matches_from(words.split(' '))
                .expect_err(words);
            let replacement = super::of_number(&error.to_string()).expect(words);
            assert!(replacement.contains(says), "{words}: {replacement}");
        }
        assert_eq!(super::of_number("error: unexpected argument"), None);
    }
}
