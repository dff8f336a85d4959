//! `quintet bench`: the load generator of `quintet-bench`.

use anyhow::Result;

#[derive(clap::Args)]
pub(super) struct Bench {
    #[command(flatten)]
    args: quintet_bench::Args,
}

impl Bench {
    pub(super) fn run(self) -> Result<()> {
        self.args.run()?;
        Ok(())
    }
}
