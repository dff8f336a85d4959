//! `quintet export`.

mod output;
mod walk;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use quintet_control::Head;
use quintet_types::Name;
use serde_json::Value;

use super::api::Api;
use super::nearest::hint;
use super::progress::{Of, Progress};
use super::records::Format;
use output::Tail;
use walk::{LISTS, List, Walk};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet export work --output work.jsonl\n  quintet export --format \
                        gzip --all-states --output all.jsonl.gz\n  quintet export work | jq \
                        .body\n\nExport takes no messages, and the server continues. It is not a \
                        snapshot: a message that is taken or changes its state meanwhile may be \
                        missing, or appear twice."
)]
pub(super) struct Export {
    /// Names of queues [default: all].
    #[arg(value_name = "QUEUE")]
    queues: Vec<String>,
    /// Format of the file.
    #[arg(long, value_enum, default_value = "jsonl")]
    format: Format,
    /// Target file; `-`: standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Export messages in all states, not only ready, delayed and buried ones.
    #[arg(long)]
    all_states: bool,
    /// Continue the file of an interrupted export; a damaged file stays as it is.
    #[arg(long)]
    resume: bool,
    /// Print no progress.
    #[arg(long, short)]
    quiet: bool,
}

impl Export {
    pub(super) fn run(self, mut api: Api) -> Result<()> {
        let (queues, total) = self.queues(&mut api)?;
        let opened = output::open(&self.output, self.format, self.resume)?;
        let Some((sink, Tail { last, messages, .. })) = opened else {
            if !self.quiet {
                eprintln!("{} is complete", self.output.display());
            }
            return Ok(());
        };
        let mut walk = Walk {
            api,
            sink,
            progress: Progress::new("exporting", Of::Messages(total), self.quiet),
            before: messages,
        };
        // They come first: an export that goes on behind a message has them.
        if last.is_none() && self.queues.is_empty() {
            walk.batches()?;
        }
        let begin = match &last {
            None => 0,
            Some(last) => queues
                .iter()
                .position(|queue| *queue == last.queue)
                .with_context(|| self.other_range(last))?,
        };
        let mut last = last;
        for queue in &queues[begin..] {
            for list in LISTS.iter().filter(|list| self.all_states || !list.rare) {
                if last.as_ref().is_none_or(|last| List::of(last) == list.name) {
                    walk.list(queue, list, last.take())?;
                }
            }
            if let Some(last) = &last {
                bail!(self.other_range(last));
            }
        }
        walk.sink.finish()?;
        walk.progress.clear();
        if !self.quiet {
            eprintln!("exported {}", walk.progress.text());
        }
        Ok(())
    }

    /// Names of the queues, in the order of the file, and how many messages
    /// are in them.
    fn queues(&self, api: &mut Api) -> Result<(Vec<String>, u64)> {
        let all = api.queues()?;
        let named = |name: &str| {
            all.iter()
                .find(|queue| queue["name"].as_str() == Some(name))
        };
        let queues: Vec<&Value> = if self.queues.is_empty() {
            all.iter().collect()
        } else {
            let mut queues = Vec::new();
            for name in &self.queues {
                let shown = Name::of_shown(name).to_string();
                let queue = named(&shown).with_context(|| {
                    let names = all.iter().filter_map(|queue| queue["name"].as_str());
                    format!("there is no queue {shown}{}", hint(&shown, names))
                })?;
                if !queues.contains(&queue) {
                    queues.push(queue);
                }
            }
            queues
        };
        let lists = LISTS.iter().filter(|list| self.all_states || !list.rare);
        let counts: Vec<&str> = lists.flat_map(|list| list.counts).copied().collect();
        let total = queues
            .iter()
            .flat_map(|queue| counts.iter().filter_map(|&count| queue[count].as_u64()))
            .sum();
        let name = |queue: &&Value| queue["name"].as_str().map(str::to_owned);
        Ok((queues.iter().filter_map(name).collect(), total))
    }

    fn other_range(&self, last: &Head) -> String {
        format!(
            "{} ends in the {} messages of the queue {}, which this export leaves out: use the \
             arguments of the interrupted export",
            self.output.display(),
            List::of(last),
            last.queue
        )
    }
}
