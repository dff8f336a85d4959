//! `quintet import`.

mod batch;
mod importer;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

use super::Where;
use super::client::Client;
use super::progress::{Of, Progress};
use super::records;
use importer::{Count, Importer};

/// Arguments of `import`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet import work.jsonl\n  quintet import all.qx --data \
                        /var/lib/other\n  quintet import work.jsonl --into again\n\nStores the \
                        messages in the order of the file, under new ids. An import that was \
                        interrupted is repeated: what is stored already is known for a week and \
                        not stored twice, as long as the file is the same. Exits with 3 if the \
                        file is not what it should be; all messages before that place are stored."
)]
pub(super) struct Import {
    #[command(flatten)]
    at: Where,
    /// What `quintet export` wrote, in either form; `-`: standard input.
    file: PathBuf,
    /// Put all messages into this queue, not into those they came from.
    #[arg(long, value_name = "QUEUE")]
    into: Option<String>,
    /// Store the messages also if this file was imported before.
    #[arg(long)]
    again: bool,
    /// Print no progress.
    #[arg(long, short)]
    quiet: bool,
}

impl Import {
    pub(super) fn run(self) -> Result<ExitCode> {
        let client = Client::connect(&self.at)?;
        let (file, bytes) = records::open(&self.file)?;
        let mut source = records::source(file)?;
        let into = self.into.as_deref().map(crate::admin::name);
        let mut importer = Importer {
            at: self.at,
            client,
            into: into.map(|name| name.to_string()),
            again: self.again,
            searching: !self.again,
            sent: VecDeque::new(),
            sent_bytes: 0,
            count: Count::default(),
            progress: Progress::new("importing", Of::Bytes(bytes), self.quiet),
            position: 0,
        };
        let done = importer.all(&mut *source);
        importer.progress.clear();
        let Count {
            stored,
            before,
            refused,
        } = importer.count;
        if done.is_err() || !self.quiet {
            eprint!("{stored} messages stored");
            if before > 0 {
                eprint!(", {before} were stored by an earlier import of this file");
            }
            if refused > 0 {
                eprint!(", {refused} are repeats to their queue and not stored");
            }
            eprintln!();
        }
        done.with_context(|| self.file.display().to_string())?;
        Ok(ExitCode::SUCCESS)
    }
}
