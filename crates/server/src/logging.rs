//! Messages for the operator, on standard error.

use anyhow::{Result, anyhow};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, fmt, reload};

/// Changes the level while the server runs.
pub(crate) struct Level(reload::Handle<Targets, Registry>);

impl Level {
    pub(crate) fn set(&self, level: &str) {
        if let Err(error) = self.0.reload(filter(level)) {
            tracing::warn!("cannot change the log level: {error}");
        }
    }
}

/// Starts logging at a level and in a form of the configuration.
///
/// # Errors
/// Logging was started before.
pub(crate) fn start(level: &str, format: &str) -> Result<Level> {
    let (filter, handle) = reload::Layer::new(filter(level));
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        // An object a line, with the fields beside the message.
        "json" => lines.json().flatten_event(true).boxed(),
        _ => lines.with_target(false).with_ansi(colours).boxed(),
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init()
        .map_err(|error| anyhow!("cannot start logging: {error}"))?;
    Ok(Level(handle))
}

/// The NATS library says at `info` again what the server says of each connection.
fn filter(level: &str) -> Targets {
    let level = level.parse().unwrap_or(LevelFilter::INFO);
    let all = Targets::new().with_default(level);
    match level {
        LevelFilter::INFO => all.with_target("async_nats", LevelFilter::WARN),
        _ => all,
    }
}
