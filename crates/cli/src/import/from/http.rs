//! Asking a server that speaks HTTP.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use ureq::http::Response;
use ureq::tls::{Certificate, TlsConfig};
use ureq::{Agent, Body};

/// A server that takes longer for a connection, or the head of an answer, is gone.
const CONNECT: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);
/// The rest of an answer may take so long: a body of any length.
const WHOLE: Duration = Duration::from_secs(3600);
/// Bytes of an answer that is read into memory: a hundred messages of 64 KiB as JSON at its worst.
pub(super) const ANSWER_MAX: u64 = 64 << 20;
/// Requests under way at once.
const CONNECTIONS: usize = 16;

/// Certificates that are trusted, and whether the environment's proxy is used.
///
/// # Errors
/// `ca` cannot be read, or has no certificates.
pub(super) fn agent(ca: Option<&Path>, proxy: bool) -> Result<Agent> {
    let mut tls = TlsConfig::builder();
    if let Some(ca) = ca {
        let all = quintet_tls::certificates(ca)
            .with_context(|| format!("cannot read {}", ca.display()))?;
        let all = all.iter().map(|one| Certificate::from_der(one).to_owned());
        tls = tls.root_certs(all.into());
    }
    let mut config = Agent::config_builder()
        .tls_config(tls.build())
        .http_status_as_error(false)
        .max_redirects(0)
        .max_idle_connections(CONNECTIONS)
        .max_idle_connections_per_host(CONNECTIONS)
        .timeout_connect(Some(CONNECT))
        .timeout_send_request(Some(PATIENCE))
        .timeout_recv_response(Some(PATIENCE))
        .timeout_recv_body(Some(WHOLE));
    if !proxy {
        config = config.proxy(None);
    }
    Ok(config.build().into())
}

/// Sends a request that may be sent twice, and again if the connection it went out on was closed:
/// one that rested may be by its next use.
///
/// # Errors
/// As `send` has them.
pub(super) fn again<T>(
    send: impl Fn() -> std::result::Result<T, ureq::Error>,
) -> std::result::Result<T, ureq::Error> {
    for _ in 0..2 {
        match send() {
            Err(ureq::Error::Io(error)) if is_closed(error.kind()) => {}
            other => return other,
        }
    }
    send()
}

/// The status and document of an answer: null where there is none, a text where it is not JSON.
///
/// # Errors
/// It cannot be read.
pub(super) fn document(
    mut response: Response<Body>,
) -> std::result::Result<(u16, Value), ureq::Error> {
    let limited = response.body_mut().with_config().limit(ANSWER_MAX);
    let read = limited.read_to_vec()?;
    let value = match serde_json::from_slice(&read) {
        Ok(value) => value,
        Err(_) if read.is_empty() => Value::Null,
        Err(_) => Value::String(String::from_utf8_lossy(&read).into_owned()),
    };
    Ok((response.status().as_u16(), value))
}

fn is_closed(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
    )
}

/// Does something to each of these, several at once; how many it says yes to.
///
/// # Errors
/// The first of its errors; what it began is ended, and some of the rest is not done.
pub(super) fn each<T: Sync>(all: &[T], act: impl Fn(&T) -> Result<bool> + Sync) -> Result<u64> {
    let (next, yes, error) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS.min(all.len()) {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match act(one) {
                        Ok(true) => _ = yes.fetch_add(1, Ordering::Relaxed),
                        Ok(false) => {}
                        Err(why) => {
                            // The others stop at their next.
                            next.store(all.len(), Ordering::Relaxed);
                            if let Ok(mut error) = error.lock() {
                                error.get_or_insert(why);
                            }
                            return;
                        }
                    }
                }
            });
        }
    });
    match error.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(yes.load(Ordering::Relaxed) as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::each;

    #[test]
    fn each_request_is_done_once_and_an_error_is_returned() {
        let all: Vec<u64> = (0..1000).collect();
        let seen = std::sync::Mutex::new(Vec::new());
        let even = each(&all, |&one| {
            seen.lock().unwrap().push(one);
            Ok(one % 2 == 0)
        });
        assert_eq!(even.unwrap(), 500);
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, all);
        let failed = each(&all, |&one| match one {
            7 => anyhow::bail!("seven"),
            _ => Ok(true),
        });
        assert_eq!(failed.unwrap_err().to_string(), "seven");
        assert_eq!(each(&[] as &[u64], |_| Ok(true)).unwrap(), 0);
    }
}
