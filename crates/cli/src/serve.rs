//! `quintet serve`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use super::RunServer;
use anyhow::Result;
use clap::{Args as _, FromArgMatches as _};
use quintet_config::{CommandLine, Secrets, load, print};

const EXAMPLES: &str = "\
Examples:
  quintet serve
  quintet serve --data /var/lib/quintet --sync 50ms
  quintet serve --port beanstalk=11301
  quintet serve --listen memcache=:22133 --listen memcache=unix:/run/q.sock
  quintet serve --listen memcache=0.0.0.0:22133,insecure
  quintet serve --config users.toml --listen memcache=0.0.0.0:22133,tls=self-signed
  quintet serve --print-config > quintet.toml

Clients of other machines have to log in over TLS. users.toml has the [[user]] table that
\"quintet passwd ann\" prints, and the rights of ann:
  [[grant]]
  user = \"ann\"
  queues = [\"*\"]
  rights = [\"put\", \"take\", \"settle\"]

If the port of a default listener is in use, the server warns and starts without this listener. If
the port of a listener from --port, --listen or [[listen]] is in use, the server does not start.

When all listeners accept, the server prints a line \"listening PROTOCOL ADDRESS\" for each, the
console's address and \"quintet ready\". A node of a cluster is ready after it has read the log;
then it prints its role: \"quintet standby of NODE\", \"quintet owner\", \"quintet deposed\".

Signals: SIGTERM and SIGINT stop the server after its pending replies; a second one stops it at
once. SIGHUP reloads the settings that can change while the server runs. After SIGUSR1 the server
rejects puts.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Serve {
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data directory; the server creates it if it is absent [default: data].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Open only the listeners named here. ADDR is HOST:PORT, :PORT, PORT or unix:PATH; ",insecure"
    /// after it allows other machines to use it without a login.
    #[arg(long, value_name = "PROTOCOL=ADDR")]
    listen: Vec<String>,
    /// Move the default listener of this protocol to another port; the others stay.
    #[arg(long, value_name = "PROTOCOL=PORT")]
    port: Vec<String>,
    /// When the log reaches the disk: always, never, or an interval such as 50ms.
    #[arg(long, value_name = "WHEN")]
    sync: Option<String>,
    /// Run a node of a cluster with its log on these NATS servers: nats://a:4222,nats://b:4222.
    #[arg(long, value_name = "SERVERS")]
    cluster: Option<String>,
    /// Print the effective configuration and exit.
    #[arg(long)]
    print_config: bool,
    /// With --print-config: print passwords and the variables of scripts too.
    #[arg(long, requires = "print_config")]
    secrets: bool,
}

impl Serve {
    /// Reads `serve` and its options, and builds none of another command: a server would keep the
    /// memory that these take. `None`: the whole command line has the command, the error or the
    /// help.
    pub(super) fn alone(words: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut words = words.peekable();
        if words.peek()? != "serve" {
            return None;
        }
        let command = Self::augment_args(clap::Command::new("serve"));
        let matches = command.try_get_matches_from(words).ok()?;
        Self::from_arg_matches(&matches).ok()
    }

    pub(super) fn run(self, server: RunServer) -> Result<ExitCode> {
        let command_line = CommandLine {
            config: self.config,
            data: self.data,
            listen: self.listen,
            port: self.port,
            sync: self.sync,
            cluster: self.cluster,
        };
        let config = load(&command_line)?;
        if self.print_config {
            let secrets = match self.secrets {
                true => Secrets::Shown,
                false => Secrets::Hidden,
            };
            print_out(&print(&config, secrets))?;
            return Ok(ExitCode::SUCCESS);
        }
        server(config, command_line)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn print_out(text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    std::io::stdout().lock().write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::Parser as _;

    use super::Serve;
    use crate::{Cli, Command};

    #[test]
    fn serve_alone_is_read_as_with_all_other_commands() {
        let options = |serve: Serve| {
            let named = (serve.config, serve.data, serve.sync, serve.cluster);
            let flags = (serve.print_config, serve.secrets);
            (named, serve.listen, serve.port, flags)
        };
        for line in [
            "serve",
            "serve --data d --config=c.toml --sync 50ms",
            "serve --listen a=1 --listen b=2 --port c=3 --print-config --secrets",
            "serve --secrets",
            "serve --data",
            "serve --unknown",
            "serve --dat d",
            "serve word",
            "serve -- word",
            "serve --help",
            "serve --version",
            "put serve",
            "help serve",
            "",
        ] {
            let words = || line.split_whitespace();
            let alone = Serve::alone(words().map(OsString::from)).map(options);
            let whole = Cli::try_parse_from(std::iter::once("quintet").chain(words())).ok();
            let whole = whole.and_then(|cli| {
                let Command::Serve(serve) = cli.command else {
                    return None;
                };
                Some(options(serve))
            });
            assert_eq!(alone, whole, "{line}");
        }
        assert!(Serve::alone(std::iter::once(OsString::from("serve"))).is_some());
    }
}
