//! Counters of HTTP, as the I/O threads count the other protocols.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quintet_config::http;
use quintet_host::{Histogram, Point, Spread, TIMES};
use quintet_http::{Clients, Errand, Replied, StreamCounts, TellReply};

use crate::io::Family;

/// Statuses are three digits and begin with 1 to 5.
const FIRST_STATUS: u16 = 100;
const STATUSES: usize = 500;

/// Counts of all listeners of HTTP, or of a protocol over it.
pub struct HttpCounts {
    protocol: &'static str,
    pub streams: Arc<StreamCounts>,
    pub clients: Arc<Clients>,
    latencies: [Histogram; Family::ALL.len()],
    /// There is such a listener.
    served: AtomicBool,
    /// Replies by family and status, from [`FIRST_STATUS`] on.
    statuses: Box<[[AtomicU64; STATUSES]; Family::ALL.len()]>,
}

impl HttpCounts {
    pub(crate) fn new() -> Arc<Self> {
        Self::of(http::NAME, Arc::default())
    }

    /// Those of another protocol, whose connections are kept count of together with these.
    pub fn beside(http: &Self, protocol: &'static str) -> Arc<Self> {
        Self::of(protocol, Arc::clone(&http.clients))
    }

    fn of(protocol: &'static str, clients: Arc<Clients>) -> Arc<Self> {
        Arc::new(Self {
            protocol,
            streams: Arc::default(),
            clients,
            latencies: std::array::from_fn(|_| Histogram::new(TIMES)),
            served: AtomicBool::new(false),
            statuses: Box::new(std::array::from_fn(|_| {
                std::array::from_fn(|_| AtomicU64::new(0))
            })),
        })
    }

    /// The receiver of a report of each reply.
    pub fn teller(self: &Arc<Self>) -> Arc<TellReply> {
        self.served.store(true, Ordering::Relaxed);
        let counts = Arc::clone(self);
        Arc::new(Box::new(move |replied| counts.replied(replied)))
    }

    fn replied(&self, replied: Replied) {
        let family = family(replied.errand);
        let took = u64::try_from(replied.took.as_micros()).unwrap_or(u64::MAX);
        self.latencies[family as usize].add(took, 1);
        let at = usize::from(replied.status.saturating_sub(FIRST_STATUS)).min(STATUSES - 1);
        self.statuses[family as usize][at].fetch_add(1, Ordering::Relaxed);
    }

    /// How long replies took, by family; nothing where HTTP is not served.
    pub fn latencies(&self) -> impl Iterator<Item = Spread> + '_ {
        let served = self.served.load(Ordering::Relaxed);
        let families = Family::ALL.into_iter().filter(move |_| served);
        families.map(|family| {
            let labels = vec![self.protocol.into(), family.name().into()];
            (labels, self.latencies[family as usize].read())
        })
    }

    /// Replies by family and status.
    pub fn statuses(&self) -> Vec<Point> {
        let of = |family: Family| {
            let counts = self.statuses[family as usize].iter();
            let counts = counts.map(|count| count.load(Ordering::Relaxed));
            let seen = (FIRST_STATUS..).zip(counts).filter(|(_, count)| *count > 0);
            seen.map(move |(status, count)| {
                let labels = vec![family.name().into(), Cow::Owned(status.to_string())];
                (labels, count as f64)
            })
        };
        Family::ALL.into_iter().flat_map(of).collect()
    }
}

fn family(errand: Errand) -> Family {
    match errand {
        Errand::Put => Family::Put,
        Errand::Take => Family::Take,
        Errand::Settle => Family::Settle,
        Errand::Other => Family::Other,
    }
}
