//! `quintet serve`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::RunServer;
use anyhow::Result;
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

Beyond this machine somebody has to say who it is, over TLS: users.toml has a [[user]] as
\"quintet passwd ann\" prints it, and what she may do:
  [[grant]]
  user = \"ann\"
  queues = [\"*\"]
  rights = [\"put\", \"take\", \"settle\"]

A default listener whose port another program has is left out, with a warning. A listener that
--port, --listen or [[listen]] names must open.

When every listener accepts, one line \"listening PROTOCOL ADDRESS\" each, the console's address
and then \"quintet ready\" are printed. A node of a cluster is ready when it has read the log; its
role follows: \"quintet standby of NODE\", \"quintet owner\", \"quintet deposed\".

Signals: SIGTERM and SIGINT stop it in good order (a second one at once), SIGHUP
reloads the settings that can change while serving, SIGUSR1 refuses puts from then on.";

/// Arguments of `serve`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Serve {
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data directory; made if absent [default: data].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Open this listener and only those named; ADDR is HOST:PORT, :PORT, PORT or unix:PATH, and
    /// ",insecure" behind it opens it beyond this machine though nobody has to log in.
    #[arg(long, value_name = "PROTOCOL=ADDR")]
    listen: Vec<String>,
    /// Move the default listener of this protocol to another port; the others stay.
    #[arg(long, value_name = "PROTOCOL=PORT")]
    port: Vec<String>,
    /// When the log reaches the disk: always, never, or an interval such as 50ms.
    #[arg(long, value_name = "WHEN")]
    sync: Option<String>,
    /// Be a node of a cluster whose log these NATS servers keep, as nats://a:4222,nats://b:4222.
    #[arg(long, value_name = "SERVERS")]
    cluster: Option<String>,
    /// Print the effective configuration and exit.
    #[arg(long)]
    print_config: bool,
    /// With --print-config: show passwords and scripts' variables too.
    #[arg(long, requires = "print_config")]
    secrets: bool,
}

impl Serve {
    pub(super) fn run(self, server: RunServer) -> Result<ExitCode> {
        let given = CommandLine {
            config: self.config,
            data: self.data,
            listen: self.listen,
            port: self.port,
            sync: self.sync,
            cluster: self.cluster,
        };
        let config = load(&given)?;
        if self.print_config {
            let secrets = match self.secrets {
                true => Secrets::Shown,
                false => Secrets::Hidden,
            };
            print_out(&print(&config, secrets))?;
            return Ok(ExitCode::SUCCESS);
        }
        server(config, given)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn print_out(text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    std::io::stdout().lock().write_all(text.as_bytes())
}
