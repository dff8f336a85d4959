//! `quintet audit`.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};
use quintet_config::parse_duration_ms;
use quintet_control::audit::{FILE, read};
use quintet_host::wall_ms;

use super::directories;
use super::table::say;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  quintet audit --since 1h
  quintet audit --since 7d --json | jq 'select(.result | test(\"^(ok|[23])\") | not)'

Each line has the time, user, address, operation, object and result. The file is audit.log in the
data directory; with its predecessor it has at most 16 MiB.")]
pub(super) struct Audit {
    /// Data directory of the server [default: the first that has an audit of `./data` and those of
    /// installed servers].
    #[arg(long, value_name = "DIR", env = "QUINTET_DATA")]
    data: Option<PathBuf>,
    /// Only entries of this last period, such as 1h or 7d.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Print a line of JSON for each entry.
    #[arg(long)]
    json: bool,
}

impl Audit {
    pub(super) fn run(self) -> Result<()> {
        let since = match &self.since {
            None => 0,
            Some(time) => {
                let ago = parse_duration_ms(time).map_err(|why| anyhow!("--since {why}"))?;
                wall_ms().saturating_sub(ago)
            }
        };
        let all = directories(self.data.as_ref());
        let has = all.iter().find(|dir| dir.join(FILE).exists());
        // A server that has noted nothing yet has no file.
        let Some(data) = has.or_else(|| all.iter().find(|dir| dir.is_dir())) else {
            let all: Vec<_> = all.iter().map(|dir| dir.display().to_string()).collect();
            bail!(
                "there is no data directory {}: name it with --data",
                all.join(" or ")
            );
        };
        let acts = read(data, since)
            .with_context(|| format!("cannot read the audit in {}", data.display()))?;
        for act in acts {
            say(self.json, serde_json::to_string(&act)?, act.line())?;
        }
        Ok(())
    }
}
