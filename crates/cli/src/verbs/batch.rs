//! `quintet batch`: messages that are counted together, seen and steered.

use anyhow::{Context as _, Result};
use quintet_types::{BatchId, CancelledAs};
use serde_json::{Value, json};

use super::super::api::Api;
use super::super::table::{print_list, say};
use super::super::{On, Where};
use super::clients::shown;

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  quintet batch\n  quintet batch new --success reports='all done' \
                  --description 'March'\n  quintet put images 1.png --batch b-0000000000000007\n  \
                  quintet batch commit b-0000000000000007\n\nPENDING counts messages that have \
                  not succeeded, FAILED the failed ones among them. COMPLETE (all have run) and \
                  SUCCESS (all have succeeded) show the state of the callback: no, put or done \
                  (finished). See docs/batches.md."
)]
pub(in super::super) struct Batch {
    /// Print a line of JSON for each batch.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    act: Option<Act>,
}

#[derive(clap::Subcommand)]
enum Act {
    /// Create a batch and print its id.
    #[command(
        after_help = "Examples:\n  quintet batch new --complete reports='all ran' --success \
                        reports='all done'\n  quintet batch new --file batch.json\n\nThe server \
                        forgets the batch after batch_open_time unless you commit it. A file has \
                        the JSON of POST /api/v1/batches."
    )]
    New(On<New>),
    /// Show batches.
    #[command(after_help = "Example:\n  quintet batch show b-0000000000000007")]
    Show(On<Steer>),
    /// Allow new messages again.
    #[command(after_help = "Example:\n  quintet batch open b-0000000000000007")]
    Open(On<Steer>),
    /// Accept no more messages, and put the callbacks when they are due.
    #[command(after_help = "Example:\n  quintet batch commit b-0000000000000007")]
    Commit(On<Steer>),
    /// Forget batches, without their callbacks.
    #[command(after_help = "Example:\n  quintet batch forget b-0000000000000007")]
    Forget(On<Steer>),
}

#[derive(clap::Args)]
struct New {
    /// Put this text into this queue when all messages have run.
    #[arg(long, value_name = "QUEUE=TEXT", value_parser = super::pair)]
    complete: Option<(String, String)>,
    /// Put this text into this queue when all messages have succeeded.
    #[arg(long, value_name = "QUEUE=TEXT", value_parser = super::pair)]
    success: Option<(String, String)>,
    /// Description for people.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Parent batch, whose callbacks wait for those of this one.
    #[arg(long, value_name = "BATCH")]
    parent: Option<String>,
    /// State in which cancelled messages count [default: failed]
    #[arg(long, value_parser = CancelledAs::ALL.iter().map(|one| one.word()).collect::<Vec<_>>(), value_name = "STATE")]
    cancelled: Option<String>,
    /// File with the whole batch as JSON; `-`: standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["complete", "success", "description", "parent", "cancelled"])]
    file: Option<String>,
    /// Print the batch as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Steer {
    /// Ids of batches.
    #[arg(required = true, value_name = "BATCH")]
    ids: Vec<String>,
    /// Print a line of JSON for each batch.
    #[arg(long)]
    json: bool,
}

impl Batch {
    pub(in super::super) fn run(self, at: Where) -> Result<()> {
        let post = |end: &'static str| {
            move |api: &mut Api, path: &str| api.ask("POST", &format!("{path}/{end}"), None)
        };
        match self.act {
            Some(Act::New(new)) => new.run(),
            Some(Act::Show(steer)) => steer.run(|api, path| api.get(path)),
            Some(Act::Open(steer)) => steer.run(post("open")),
            Some(Act::Commit(steer)) => steer.run(post("commit")),
            // Each as it was last.
            Some(Act::Forget(steer)) => steer.run(|api, path| {
                let batch = api.get(path)?;
                api.ask("DELETE", path, None).map(|_| batch)
            }),
            None => {
                let path = "/batches?limit=1000";
                let all = Api::connect(&at)?.pages(path, "batches", "next", "after")?;
                list(&all, self.json)
            }
        }
    }
}

impl On<New> {
    fn run(self) -> Result<()> {
        let of = match &self.does.file {
            Some(file) => super::json_of(file)?,
            None => self.definition(),
        };
        let batch = self.at.api("POST", "/batches", Some(&of))?;
        say(self.does.json, &batch, shown(&batch["id"]))
    }

    fn definition(&self) -> Value {
        let callback = |of: &Option<(String, String)>| {
            let of = of.as_ref();
            of.map(|(queue, body)| json!({ "queue": queue, "body": body }))
        };
        super::given(json!({
            "complete": callback(&self.does.complete),
            "success": callback(&self.does.success),
            "description": self.does.description,
            "parent": self.does.parent,
            "cancelled": self.does.cancelled,
        }))
    }
}

impl On<Steer> {
    /// Shows what comes of `act` on the address of each batch.
    fn run(self, act: impl Fn(&mut Api, &str) -> Result<Value>) -> Result<()> {
        let mut api = Api::connect(&self.at)?;
        let all = self.does.ids.iter().map(|id| act(&mut api, &path(id)?));
        list(&all.collect::<Result<Vec<_>>>()?, self.does.json)
    }
}

/// The address of a batch.
fn path(id: &str) -> Result<String> {
    let id = BatchId::parse(id)
        .context("the id of a batch is b- and 16 hexadecimal digits: see `quintet batch`")?;
    Ok(format!("/batches/{id}"))
}

fn list(all: &[Value], as_json: bool) -> Result<()> {
    let columns = "batch description state total pending failed complete success";
    print_list(all, as_json, columns, |batch, column| match column {
        "batch" => shown(&batch["id"]),
        "state" if batch["open"] == true => "open".to_owned(),
        "state" => "committed".to_owned(),
        key => shown(&batch[key]),
    })
}
