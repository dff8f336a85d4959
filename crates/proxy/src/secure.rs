//! Clients under TLS: it ends here, and what their certificate says travels in the tunnel line.

use std::io;
use std::sync::Arc;

use quintet_tls::{Failure, HANDSHAKE, Secure, identity};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use crate::line::Tunnel;
use crate::shared::{DropGuard, Shared};
use crate::socket::Plain;
use crate::tunnel;

/// Sees to one client, from its handshake on, until which it is `counted` here.
pub(crate) async fn run(
    shared: Arc<Shared>,
    client: Plain,
    mut tunnel: Tunnel,
    tls: Secure,
    counted: Option<DropGuard>,
) {
    let stream = match client {
        // A unix socket is on this machine.
        Plain::Right(_) => return tunnel::run(shared, Either::Left(client), tunnel).await,
        Plain::Left(stream) => stream,
    };
    let shaken = timeout(tls.shared.handshake_time(), handshake(stream, &tls)).await;
    drop(counted);
    match shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(client) => {
            let _opened = tls.shared.open_until_dropped();
            let identity = identity(client.get_ref().1.peer_certificates());
            tunnel.principal = identity.map_or_else(String::new, |who| who.to_text());
            tunnel::run(shared, Either::Right(Box::new(client)), tunnel).await;
        }
        Err(error) => {
            tls.shared
                .failed(&tunnel.protocol, None, tunnel.peer, &error);
            if let Some(peer) = tunnel.peer {
                shared.node.handshake_failed(peer);
            }
        }
    }
}

async fn handshake(stream: TcpStream, tls: &Secure) -> io::Result<TlsStream<TcpStream>> {
    let mut first = [0];
    if stream.peek(&mut first).await? > 0 && first[0] != HANDSHAKE {
        return Err(Failure::Plain.into());
    }
    TlsAcceptor::from(tls.acceptor.config())
        .accept(stream)
        .await
}
