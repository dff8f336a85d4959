//! `quintet bench`: the load generator of `quintet-bench`.

use std::process::ExitCode;

use anyhow::Result;

/// Arguments of `bench`.
#[derive(clap::Args)]
pub(super) struct Bench {
    #[command(flatten)]
    args: quintet_bench::Args,
}

impl Bench {
    pub(super) fn run(self) -> Result<ExitCode> {
        self.args.run()?;
        Ok(ExitCode::SUCCESS)
    }
}
