//! Many messages in and out, and how fast that went over time.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quintet_bench::{Bar, Live, Load, Mix, Report};

use super::server::Server;

/// Connections that put or take in bulk, and requests of each at once.
pub(crate) const CONNECTIONS: usize = 10;
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

    /// The queue.
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

    /// Puts `count` messages as fast as they are taken in; `look` is shown how
    /// it goes several times a second.
    ///
    /// # Errors
    /// The load fails, or takes over half an hour.
    pub(crate) fn put(
        self,
        server: &Server,
        count: u64,
        look: &mut dyn FnMut(Live),
    ) -> Result<Bulk> {
        let mut load = self.load(server)?;
        (load.mix, load.depth) = (Mix::PUT, DEPTH);
        let bulk = run(load, count, &format!("{}: put", self.prefix), look)?;
        let puts = bulk.report.puts;
        ensure!(puts == count, "only {puts} of {count} messages were put");
        Ok(bulk)
    }

    /// Takes `count` messages, which are there, as fast as they come over so
    /// many connections.
    ///
    /// # Errors
    /// Fewer came; the load fails, or takes over half an hour.
    pub(crate) fn take(self, server: &Server, count: u64, connections: usize) -> Result<Bulk> {
        let mut load = self.load(server)?;
        (load.mix, load.depth, load.connections) = (Mix::TAKE, DEPTH, connections);
        let bulk = run(load, count, &format!("{}: take", self.prefix), &mut |_| {})?;
        let Report { takes, empty, .. } = bulk.report;
        let all = takes == count && empty == 0;
        ensure!(
            all,
            "{takes} takes for {count} messages, {empty} of them found nothing"
        );
        Ok(bulk)
    }
}

/// Result of a bulk load.
pub(crate) struct Bulk {
    pub(crate) report: Report,
    pub(crate) trace: Trace,
}

fn run(mut load: Load, count: u64, what: &str, look: &mut dyn FnMut(Live)) -> Result<Bulk> {
    (load.count, load.time) = (Some(count), TIME_MAX);
    let mut points = Vec::new();
    let report = measure(&load, what, &mut |live| {
        points.push((live.seconds, live.requests));
        look(live);
    })?;
    let trace = Trace::new(points, (report.seconds, report.requests));
    Ok(Bulk { report, trace })
}

/// One measurement of a load with a live line; `look` is shown how it goes
/// several times a second.
///
/// # Errors
/// The load fails.
pub(crate) fn measure(load: &Load, what: &str, look: &mut dyn FnMut(Live)) -> Result<Report> {
    let bar = Bar::new(what, load.time);
    let report = load.run(&mut |live| {
        bar.show(live);
        look(live);
    });
    bar.clear();
    report.with_context(|| what.to_owned())
}

/// How many requests were answered by when.
pub(crate) struct Trace {
    /// Seconds and requests, both rising; from the beginning to the end.
    points: Vec<(f64, f64)>,
}

impl Trace {
    /// Of looks in order of time, and the end.
    fn new(looks: Vec<(f64, u64)>, end: (f64, u64)) -> Self {
        let mut points = vec![(0.0, 0.0)];
        for (seconds, requests) in looks {
            // A look may come after the last reply.
            let (_, last) = points[points.len() - 1];
            if seconds < end.0 && requests < end.1 && requests as f64 > last {
                points.push((seconds, requests as f64));
            }
        }
        points.push((end.0, end.1 as f64));
        Self { points }
    }

    /// Requests a second between two parts of all requests, 0 to 1.
    pub(crate) fn rate(&self, from: f64, to: f64) -> f64 {
        let total = self.points.last().map_or(0.0, |end| end.1);
        (to - from) * total / (self.when(to * total) - self.when(from * total))
    }

    /// When so many requests were answered, between the looks as if steadily.
    fn when(&self, requests: f64) -> f64 {
        for pair in self.points.windows(2) {
            let ((early, fewer), (late, more)) = (pair[0], pair[1]);
            if requests <= more && more > fewer {
                return early + (late - early) * (requests - fewer) / (more - fewer);
            }
        }
        self.points.last().map_or(0.0, |end| end.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Trace;

    #[test]
    fn rates_between_parts() {
        // 100 a second for a second, then 300 a second for a second; looks
        // that saw nothing new or came after the end count for nothing.
        let looks = vec![(0.5, 50), (0.7, 50), (1.0, 100), (2.5, 400)];
        let trace = Trace::new(looks, (2.0, 400));
        for (from, to, rate) in [
            (0.0, 0.25, 100.0),
            (0.25, 1.0, 300.0),
            (0.5, 0.75, 300.0),
            (0.0, 1.0, 200.0),
            (0.0, 0.125, 100.0),
        ] {
            let found = trace.rate(from, to);
            assert!((found - rate).abs() < 1e-9, "{from} to {to}: {found}");
        }
    }
}
