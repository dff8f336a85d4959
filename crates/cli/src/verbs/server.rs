//! `quintet wait`, `drain`, `undrain` and `reload`: the server as a whole.

use std::io::{Write as _, stdout};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::super::Where;
use super::super::api::Api;
use super::super::client::Refused;
use super::duration;

#[derive(clap::Args)]
#[command(
    after_help = "Exit code 0: the server responds; 1: it does not, with the reason on \
                  stderr.\n\nExample:\n  quintet serve &\n  quintet wait --for 30s && quintet put \
                  work hello"
)]
pub(in super::super) struct Wait {
    /// Give up after this time.
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = duration)]
    for_ms: u64,
}

/// Between two tries of `wait`.
const TRY_AGAIN: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  quintet drain && until quintet stats --all | grep -q '^ready  *0'; \
                        do sleep 1; done\n\nThe server rejects puts, as after SIGUSR1, until \
                        `quintet undrain` or the next start. To move the queues of a node to \
                        another one, use `quintet cluster drain`."
)]
pub(in super::super) struct Drain;

#[derive(clap::Args)]
#[command(after_help = "Example:\n  quintet undrain")]
pub(in super::super) struct Undrain;

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  quintet reload\n\nThe server reads its configuration as after \
                        SIGHUP; the command returns when this is done. If the file has an error, \
                        the old settings stay, the command prints the reason, and the exit \
                        code is 1."
)]
pub(in super::super) struct Reload;

impl Wait {
    pub(in super::super) fn run(self, at: Where) -> Result<()> {
        let (sender, receiver) = channel();
        // Another server may have the default port; this one's socket comes.
        let at = Where {
            only_sockets: true,
            ..at
        };
        let end = Instant::now() + Duration::from_millis(self.for_ms);
        // A server that reads its log lets clients connect and answers later. This thread ends with
        // the process.
        std::thread::spawn(move || {
            while sender.send(answers(&at)).is_ok() {
                std::thread::sleep(TRY_AGAIN);
            }
        });
        let mut why = anyhow!("the server does not respond; it may still be reading its log");
        loop {
            match receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => why = error,
                Err(_) => return Err(why),
            }
        }
    }
}

/// # Errors
/// There is no server, or it closes the connection. One that refuses answers.
fn answers(at: &Where) -> Result<()> {
    match at.api("GET", "/stats", None) {
        Err(error) if !error.is::<Refused>() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

impl Drain {
    pub(in super::super) fn run(self, api: Api) -> Result<()> {
        order(api, "drain", "the server rejects puts from now on")
    }
}

impl Undrain {
    pub(in super::super) fn run(self, api: Api) -> Result<()> {
        order(api, "undrain", "the server accepts puts again")
    }
}

impl Reload {
    pub(in super::super) fn run(self, mut api: Api) -> Result<()> {
        let reply = api.ask("POST", "/server/reload?wait=true", None)?;
        writeln!(stdout(), "the server has read its configuration again")?;
        for note in reply["notes"].as_array().into_iter().flatten() {
            writeln!(stdout(), "{}", note.as_str().unwrap_or_default())?;
        }
        Ok(())
    }
}

fn order(mut api: Api, act: &str, says: &str) -> Result<()> {
    api.ask("POST", &format!("/server/{act}"), None)?;
    writeln!(stdout(), "{says}")?;
    Ok(())
}
