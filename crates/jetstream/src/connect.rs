//! Ways to the servers.

use std::{fmt, path::PathBuf, time::Duration};

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event};
use tokio::time::timeout;

use crate::Result;
use crate::error::Error;

/// How long an answer is waited for. Who asks asks again.
pub(crate) const ANSWER: Duration = Duration::from_secs(1);

/// A connection that says nothing for two of these is over. The library's own minute would let an
/// owner stand still for as long beside a server that is frozen, not dead.
const PING: Duration = Duration::from_millis(500);
/// How long connecting may take, for the same reason.
const CONNECT: Duration = Duration::from_millis(500);
/// Messages of a subscription that wait for their turn, at most; what is dropped beyond is fetched
/// again. Entries are of 256 KiB at most, mostly far less.
const UNREAD: usize = 512;
/// How to reach the servers.
#[derive(Clone, Default)]
pub struct Servers {
    /// Their addresses, as `nats://host:port`; those nearer first.
    pub addresses: Vec<String>,
    /// Name of the server that is tried first, whatever their order; empty: none.
    pub near: String,
    pub credentials: Option<PathBuf>,
    /// A user's name and password.
    pub user: Option<(String, String)>,
    /// Certificates of who signs the servers'.
    pub tls_ca: Option<PathBuf>,
    /// A certificate and its key, to show to the servers.
    pub tls_identity: Option<(PathBuf, PathBuf)>,
}

impl fmt::Debug for Servers {
    /// Without what is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

/// The addresses with that of the near server first, which each server's greeting tells.
pub(crate) async fn nearest_first(servers: &Servers) -> Vec<String> {
    let mut addresses = servers.addresses.clone();
    if servers.near.is_empty() {
        return addresses;
    }
    for at in 0..addresses.len() {
        let Ok(client) = connect(servers, &addresses[at..=at], false).await else {
            continue;
        };
        let name = client.try_server_info().map(|info| info.server_name);
        if name.as_ref() == Some(&servers.near) {
            addresses[..=at].rotate_right(1);
            return addresses;
        }
    }
    tracing::warn!(target: "quintet::cluster", "no NATS server is called {:?}", servers.near);
    addresses
}

/// Connects to the first of these addresses that takes it. `told`: the log says what becomes of the
/// connection.
///
/// # Errors
/// As [`crate::JetStream::connect`].
pub(crate) async fn connect(
    servers: &Servers,
    addresses: &[String],
    reported: bool,
) -> Result<Client> {
    let mut options = ConnectOptions::new()
        .name("quintet")
        .ping_interval(PING)
        .connection_timeout(CONNECT)
        .subscription_capacity(UNREAD)
        .retain_servers_order()
        // Who is nearest is tried first, and soon again.
        .reconnect_delay_callback(|tries| {
            Duration::from_millis(u64::try_from(tries).unwrap_or(u64::MAX).min(10) * 50)
        })
        .event_callback(move |event| async move {
            // What a subscription drops is fetched.
            if reported && !matches!(event, Event::SlowConsumer(_)) {
                tracing::info!(target: "quintet::cluster", "NATS: {event}");
            }
        });
    if let Some(file) = &servers.credentials {
        let with = options.credentials_file(file).await;
        options = with.map_err(Error::Credentials)?;
    }
    if let Some((user, password)) = &servers.user {
        options = options.user_and_password(user.clone(), password.clone());
    }
    if let Some(ca) = &servers.tls_ca {
        options = options.add_root_certificates(ca.clone()).require_tls(true);
    }
    if let Some((certificate, key)) = &servers.tls_identity {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    let unreachable = |why: String| Error::Unreachable(addresses.to_vec(), why);
    // A frozen server takes the connection and says nothing.
    match timeout(
        4 * CONNECT * addresses.len().max(1) as u32,
        options.connect(addresses),
    )
    .await
    {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(error)) => match error.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                Err(Error::Denied(addresses.to_vec()))
            }
            _ => Err(unreachable(error.to_string())),
        },
        Err(_) => Err(unreachable("no answer".to_owned())),
    }
}
