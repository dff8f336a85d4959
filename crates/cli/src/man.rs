//! `quintet man`.

use std::io::{Write as _, stdout};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;

use super::Cli;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  quintet man | man -l -
  quintet man --dir /usr/local/share/man/man1")]
pub(super) struct Man {
    /// Write a page for each command into this directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(self) -> Result<()> {
        match &self.dir {
            None => {
                let mut page = Vec::new();
                clap_mangen::Man::new(Cli::command()).render(&mut page)?;
                stdout().lock().write_all(&page)?;
            }
            Some(dir) => {
                let written = std::fs::create_dir_all(dir)
                    .and_then(|()| clap_mangen::generate_to(Cli::command(), dir));
                written.with_context(|| format!("cannot write the manual to {}", dir.display()))?;
            }
        }
        Ok(())
    }
}
