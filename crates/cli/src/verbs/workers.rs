//! `quintet workers`: processes of clients that say a name of their own, seen,
//! asked to be quiet or to end.

use std::io::{Write as _, stdout};

use anyhow::Result;

use super::super::api::{Api, part};
use super::super::table::{age, print_list, seen};
use super::super::{On, Where};
use super::clients::shown;

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  quintet workers\n  quintet workers --json | grep \
                  '\"state\":\"quiet\"'\n  quintet workers quiet 4qpc2443vpvai\n  quintet workers \
                  terminate 4qpc2443vpvai\n\nThe list has workers of the faktory protocol. JOBS \
                  counts the jobs that their open connections hold.\nSEEN is the last sign of \
                  life; the server forgets a worker after a minute of silence.\nSee \
                  docs/protocols/faktory.md."
)]
pub(in super::super) struct Workers {
    /// Print a line of JSON for each worker.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    act: Option<Act>,
}

#[derive(clap::Subcommand)]
enum Act {
    /// Give workers no more jobs, and ask them to finish the present ones.
    #[command(after_help = "Example:\n  quintet workers quiet 4qpc2443vpvai\n\n\
                        The next heartbeat (BEAT) carries it. This cannot be undone.")]
    Quiet(On<Steer>),
    /// Do the same, and ask the workers to end.
    #[command(after_help = "Example:\n  quintet workers terminate 4qpc2443vpvai\n\n\
                        The next heartbeat (BEAT) carries it. This cannot be undone.")]
    Terminate(On<Steer>),
}

#[derive(clap::Args)]
struct Steer {
    /// Names of workers.
    #[arg(required = true, value_name = "WID")]
    wids: Vec<String>,
}

impl Workers {
    pub(in super::super) fn run(self, at: Where) -> Result<()> {
        match self.act {
            Some(Act::Quiet(steer)) => return steer.run("quiet", "gets no more jobs"),
            Some(Act::Terminate(steer)) => return steer.run("terminate", "must end"),
            None => {}
        }
        let all = Api::connect(&at)?.list("/workers", "wid")?;
        let columns = "wid host pid labels state jobs connections since seen";
        print_list(&all, self.json, columns, |worker, column| {
            let labels = || worker["labels"].as_array().into_iter().flatten();
            let ago = |key: &str| age(worker[key].as_u64().unwrap_or(0));
            match column {
                "labels" => labels().map(shown).collect::<Vec<_>>().join(","),
                "since" => ago("age_ms"),
                "seen" => ago("silent_ms"),
                key => shown(&worker[key]),
            }
        })
    }
}

impl On<Steer> {
    fn run(self, act: &str, done: &str) -> Result<()> {
        let mut api = Api::connect(&self.at)?;
        for wid in &self.does.wids {
            api.ask("POST", &format!("/workers/{}/{act}", part(wid)), None)?;
            writeln!(stdout(), "{} {done}", seen(wid))?;
        }
        Ok(())
    }
}
