//! How many connections the process's limit on open files has room for.

use super::{Config, Served};

/// Files kept back from clients: the log with its readers, spares and runs,
/// the listeners, and what a turn needs for a moment.
const SERVER_FILES: u64 = 256;
/// Connections beyond `connections_max`: operators, and addresses that have
/// none yet.
pub const RESERVE: u64 = 64;
/// Pipes and logs of one running script ...
const SCRIPT_FILES: u64 = 4;
/// The part of these that count as scripts.
const SCRIPTS: u64 = 64;

/// Values that fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Places {
    /// Connections over all listeners but http and sqs.
    pub connections: u64,
    /// Connections and event streams of each of those at most.
    pub http: u64,
    /// Polls of each of those beside its connections, and as many unfinished bodies.
    pub apart: u64,
    /// Files that would be needed for all that is configured.
    pub wanted: u64,
}

impl Config {
    /// How many connections may be open at once with `limit` open files.
    pub fn places(&self, limit: u64) -> Places {
        let http: Vec<u64> = self
            .listen
            .iter()
            .filter_map(|listen| {
                let of = |option| listen.options.number(option);
                match listen.served {
                    Served::Http => Some(of("max_connections") + of("max_streams")),
                    Served::Sqs => Some(of("max_connections")),
                    Served::Protocol(_) => None,
                }
            })
            .collect();
        let scripts = SCRIPT_FILES * self.script_limits.children_max.min(SCRIPTS);
        // Those of the API on the control socket, beside the others of operators.
        let kept = SERVER_FILES + 2 * RESERVE + scripts;
        let wanted = self.connections_max + http.iter().sum::<u64>() + kept;
        let listeners = http.len() as u64;
        if wanted <= limit {
            // Polls and unfinished bodies are beside the others, as far as files are left.
            let apart = ((limit - wanted) / 2).checked_div(listeners);
            return Places {
                connections: self.connections_max,
                http: u64::MAX,
                apart: apart.unwrap_or(0),
                wanted,
            };
        }
        // Something is left to serve with, however small the limit is.
        let left = limit.saturating_sub(kept).max(limit / 4).max(8);
        let each = (left / 4).checked_div(listeners).unwrap_or(0).max(1);
        let for_http: u64 = http.iter().map(|most| each.min(*most)).sum();
        Places {
            connections: left
                .saturating_sub(for_http)
                .clamp(1, self.connections_max.max(1)),
            http: each,
            apart: 0,
            wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::from_text;

    #[test]
    fn connections_fit_the_files_there_are() {
        let config = from_text("connections_max = 10000\n").expect("read");
        let kept = 256 + 2 * 64 + 256;
        let enough = config.places(20_000);
        assert_eq!(enough.connections, 10_000);
        let exact = config.places(enough.wanted);
        assert_eq!((exact.connections, exact.http), (10_000, u64::MAX));
        let sqs = "connections_max = 10\n[[listen]]\nprotocol = \"sqs\"\naddress = \"127.0.0.1:0\"\nmax_connections = 2000\n";
        let sqs = from_text(sqs).expect("read");
        let wanted = sqs.places(20_000).wanted;
        assert_eq!(
            (sqs.places(wanted).apart, sqs.places(wanted + 500).apart),
            (0, 250)
        );
        for limit in [1, 64, 256, 1024, 4096, enough.wanted - 1] {
            let places = config.places(limit);
            assert!(places.connections >= 1 && places.http >= 1, "{limit}");
            if limit >= 1024 {
                // It has no http listener.
                let all = places.connections + kept;
                assert!(all <= limit, "{limit}: {places:?}");
            }
        }
    }
}
