//! The handshakes of connections under TLS.

use std::io;

use quintet_tls::{Failure, HANDSHAKE, Secure};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::watched::Watched;

/// To a client that does not begin as TLS does.
const PLAIN_REFUSED: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 43\r\nConnection: close\r\n\r\nthis port speaks TLS: ask with https://...\n";

/// Agrees with a client, in any time.
///
/// # Errors
/// There is no agreement.
pub(crate) async fn handshake(
    mut stream: TcpStream,
    tls: &Secure,
) -> io::Result<TlsStream<Watched>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if first[0] != HANDSHAKE {
        stream.write_all(PLAIN_REFUSED).await?;
        stream.shutdown().await?;
        // Closing with unread bytes would reset it, and the answer might never be seen.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
        return Err(Failure::Plain.into());
    }
    TlsAcceptor::from(tls.acceptor.config())
        .accept(Watched::from(stream))
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_has_its_announced_length() {
        let text = PLAIN_REFUSED.split(|&byte| byte == b'\n').rev().nth(1);
        assert_eq!(text.map(|text| text.len() + 1), Some(43));
    }
}
