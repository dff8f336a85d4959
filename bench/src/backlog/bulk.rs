//! Many messages in and out.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quintet_bench::{Live, Load, Mix, Report};

use super::server::Server;

/// Connections of a load, and requests of each at once in bulk.
const CONNECTIONS: usize = 10;
const DEPTH: usize = 64;
/// No bulk takes longer.
const TIME_MAX: Duration = Duration::from_secs(1800);

/// Where bulk messages go.
#[derive(Clone, Copy)]
pub(crate) struct Pile {
    pub(crate) protocol: &'static str,
    /// The name of the queue is this and `0000`.
    pub(crate) prefix: &'static str,
    /// Bytes of a message.
    pub(crate) size: usize,
}

impl Pile {
    /// Of messages of 100 B, in memcache's protocol.
    pub(crate) fn small(prefix: &'static str) -> Self {
        let (protocol, size) = ("memcache", 100);
        Self {
            protocol,
            prefix,
            size,
        }
    }

    pub(crate) fn queue(self) -> String {
        format!("{}0000", self.prefix)
    }

    /// A load of put and take in turn on this one queue.
    ///
    /// # Errors
    /// There is no such protocol.
    pub(crate) fn load(self, server: &Server) -> Result<Load> {
        let mut load = server.load(self.protocol)?;
        load.connections = CONNECTIONS;
        load.size = self.size;
        load.queue = self.prefix.to_owned();
        load.queues = Some(1);
        Ok(load)
    }

    /// Puts `count` messages as fast as they are taken in; `observe` is shown how
    /// it goes several times a second.
    ///
    /// # Errors
    /// The load fails, or takes over half an hour.
    pub(crate) fn put(
        self,
        server: &Server,
        count: u64,
        observe: &mut dyn FnMut(Live),
    ) -> Result<()> {
        let mut load = self.load(server)?;
        (load.mix, load.depth) = (Mix::PUT, DEPTH);
        (load.count, load.time) = (Some(count), TIME_MAX);
        let puts = measure(&load, &format!("{}: put", self.prefix), observe)?.puts;
        ensure!(puts == count, "only {puts} of {count} messages were put");
        Ok(())
    }

    /// Takes `count` messages, which are there, as fast as they come over one connection.
    ///
    /// # Errors
    /// Fewer came; the load fails, or takes over half an hour.
    pub(crate) fn take(self, server: &Server, count: u64) -> Result<Report> {
        let mut load = self.load(server)?;
        (load.mix, load.depth, load.connections) = (Mix::TAKE, DEPTH, 1);
        (load.count, load.time) = (Some(count), TIME_MAX);
        let report = measure(&load, &format!("{}: take", self.prefix), &mut |_| {})?;
        let Report { takes, empty, .. } = report;
        let all = takes == count && empty == 0;
        ensure!(
            all,
            "{takes} takes for {count} messages, {empty} of them found nothing"
        );
        Ok(report)
    }
}

/// One measurement of a load with a live line; `observe` is shown how it goes
/// several times a second.
///
/// # Errors
/// The load fails.
pub(crate) fn measure(load: &Load, what: &str, observe: &mut dyn FnMut(Live)) -> Result<Report> {
    let report = load.measure(what, observe);
    report.with_context(|| what.to_owned())
}
