//! `quintet move`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use serde_json::json;

use super::super::api::Api;
use super::bulk::{Bulk, Many, OF_MANY};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet move work later                      all ready messages\n  \
                        quintet move work work-dead --state buried   buried messages\n  quintet \
                        move work later --dry-run            only their number\n  quintet move \
                        work later --contains 'user 7'  only these\n  quintet move --id 1234 \
                        later                 this message\n\nA message goes to the end of the \
                        other queue and is ready there, whatever its state was. Reserved messages \
                        stay, and so do messages that are put meanwhile."
)]
pub(in super::super) struct Move {
    /// Source queue and target queue; with --id only the target.
    #[arg(value_names = ["FROM", "TO"], num_args = 1..=2, required = true)]
    queues: Vec<String>,
    /// Only this message.
    #[arg(long, conflicts_with_all = OF_MANY, conflicts_with = "state")]
    id: Option<u64>,
    /// State of the messages.
    #[arg(long, default_value = "ready", value_parser = ["ready", "delayed", "buried", "archived"])]
    state: String,
    #[command(flatten)]
    many: Many,
}

impl Move {
    pub(in super::super) fn run(self, mut api: Api) -> Result<ExitCode> {
        let (from, to) = match (self.id, self.queues.as_slice()) {
            (Some(id), [to]) => {
                let to = json!({ "to": to });
                api.ask("POST", &format!("/messages/{id}/move"), Some(&to))?;
                return self.many.how.report(1, "moved");
            }
            (None, [from, to]) => (from, to),
            (Some(_), _) => bail!("with --id, name only the target queue: quintet move --id ID TO"),
            (None, _) => bail!("name two queues: quintet move FROM TO"),
        };
        if from == to {
            bail!("a queue's messages cannot move to the same queue: name another target");
        }
        let acts = [(self.state.as_str(), "move")];
        let bulk = Bulk::of(&self.many, from, &acts, "moved");
        let to = Some(to.as_str());
        Bulk { to, ..bulk }.run(&mut api)
    }
}
