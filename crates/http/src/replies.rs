//! Reports of replies: their purpose, result and duration.

use std::time::Duration;

use axum::response::Response;
use hyper::Method;

/// Purpose of a request, for the time that its reply takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Errand {
    Put,
    Take,
    /// Ends a lease, or makes it last.
    Settle,
    Other,
}

/// A reply that begins to leave.
#[derive(Clone, Copy, Debug)]
pub struct Replied {
    pub errand: Errand,
    pub status: u16,
    /// Since its request's head was there; waits for messages not counted.
    pub took: Duration,
}

/// Notified of each reply, by the thread that serves it.
pub type TellReply = Box<dyn Fn(Replied) + Send + Sync>;

/// In a reply: its request waited so long for messages.
#[derive(Clone, Copy, Debug)]
pub struct Waited(pub Duration);

impl Errand {
    /// By method and path, which begins at the site's root.
    pub fn of(method: &Method, path: &str) -> Self {
        if *method != Method::POST {
            return Self::Other;
        }
        let mut parts = path.trim_start_matches('/').splitn(6, '/');
        let parts: [&str; 6] = std::array::from_fn(|_| parts.next().unwrap_or(""));
        match parts {
            [
                "api",
                "v1",
                "queues",
                _,
                "messages" | "record" | "records",
                "",
            ]
            | ["q", _, "new_message", "", "", ""]
            | ["put", "", "", "", "", ""] => Self::Put,
            ["api", "v1", "queues", _, "reserve", ""] | ["api", "v1", "take", "", "", ""] => {
                Self::Take
            }
            ["api", "v1", "leases", _, _, ""] => Self::Settle,
            _ => Self::Other,
        }
    }
}

/// How long a reply took, of a request that was begun so long ago.
pub fn took(response: &Response, since: Duration) -> Duration {
    let waited = response.extensions().get::<Waited>();
    since.saturating_sub(waited.map_or(Duration::ZERO, |waited| waited.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_errand_of_its_address() {
        for (method, path, errand) in [
            ("POST", "/api/v1/queues/a/messages", Errand::Put),
            ("GET", "/api/v1/queues/a/messages", Errand::Other),
            ("POST", "/api/v1/queues/a/record", Errand::Put),
            ("POST", "/api/v1/take", Errand::Take),
            ("POST", "/q/a/new_message", Errand::Put),
            ("POST", "/put", Errand::Put),
            ("POST", "/api/v1/queues/a/reserve", Errand::Take),
            ("POST", "/api/v1/leases/t/finish", Errand::Settle),
            ("POST", "/api/v1/queues/a/acts/purge", Errand::Other),
            ("POST", "/api/v1/leases/t/finish/more", Errand::Other),
            ("GET", "/", Errand::Other),
        ] {
            let method = method.parse().expect("a method");
            assert_eq!(Errand::of(&method, path), errand, "{path}");
        }
    }
}
