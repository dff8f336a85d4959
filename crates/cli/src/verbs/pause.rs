//! `quintet pause` and `resume`.

use anyhow::Result;
use serde_json::{Value, json};

use super::super::api::{Api, part};
use super::super::table::say;
use super::duration;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet pause work             until quintet resume\n  quintet \
                        pause work --for 10m   ends after ten minutes\n\nTakes wait as if the \
                        queue were empty; puts continue. A pause survives restarts. `quintet rq \
                        pause` is different: it pauses the scripts of RQ."
)]
pub(in super::super) struct Pause {
    /// Names of queues.
    #[arg(required = true, value_name = "QUEUE")]
    queues: Vec<String>,
    /// Duration of the pause [default: until `quintet resume`].
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    time: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  quintet resume work")]
pub(in super::super) struct Resume {
    /// Names of queues.
    #[arg(required = true, value_name = "QUEUE")]
    queues: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Pause {
    pub(in super::super) fn run(self, api: Api) -> Result<()> {
        // No time is no pause.
        let (act, body) = match self.time {
            Some(0) => ("resume", None),
            time => ("pause", Some(json!({ "for_ms": time }))),
        };
        each(api, &self.queues, (act, body), "paused", self.json)
    }
}

impl Resume {
    pub(in super::super) fn run(self, api: Api) -> Result<()> {
        each(api, &self.queues, ("resume", None), "resumed", self.json)
    }
}

fn each(
    mut api: Api,
    queues: &[String],
    (act, body): (&str, Option<Value>),
    done: &str,
    as_json: bool,
) -> Result<()> {
    for queue in queues {
        api.ask(
            "POST",
            &format!("/queues/{}/{act}", part(queue)),
            body.as_ref(),
        )?;
        // A user that may not see the queue gets no more.
        let stays = act == "resume"
            && api
                .get(&format!("/queues/{}", part(queue)))
                .is_ok_and(|shown| shown["paused"] == true);
        let json = json!({ done: queue, "paused": act == "pause" || stays });
        let text = match stays {
            true => {
                format!("{queue} stays paused by its setting: quintet set {queue} paused=false")
            }
            false => format!("{queue} {done}"),
        };
        say(as_json, json, text)?;
    }
    Ok(())
}
