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
