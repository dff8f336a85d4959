//! A request's body, for as long as its client may go on sending it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::body::{Body as HyperBody, Frame, Incoming, SizeHint};
use hyper::header::EXPECT;
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::clients::Client;
use crate::slots::{Apart, ConnectionSlot, Waits};

/// The rest of a body, which no handler reads, is read and dropped up to this length, and for this
/// time.
const UNREAD_BYTES_MAX: u64 = 1 << 20;
const UNREAD_TIME_MAX: Duration = Duration::from_secs(10);

/// Breaks off when the client ends its side of the connection, and when the server stops while
/// more of the body is waited for.
struct InterruptibleBody {
    /// `None` only once it is dropped.
    body: Option<Incoming>,
    /// The client sends more of it without waiting for a word.
    goes_on: bool,
    client: Arc<Client>,
    connection_slot: Option<Arc<ConnectionSlot>>,
    /// Its connection's place is another's while it waits.
    apart: Option<Apart>,
    /// Made when the body has to be waited for.
    let_go: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// A request whose body breaks off so, if it came by a connection.
pub fn interruptible(request: Request<Incoming>) -> Request<Body> {
    let client = request.extensions().get::<Arc<Client>>().cloned();
    let connection_slot = request.extensions().get::<Arc<ConnectionSlot>>().cloned();
    let goes_on = !request.headers().contains_key(EXPECT);
    request.map(|body| match client {
        Some(client) if !body.is_end_stream() => Body::new(InterruptibleBody {
            body: Some(body),
            goes_on,
            client,
            connection_slot,
            apart: None,
            let_go: None,
        }),
        _ => Body::new(body),
    })
}

impl HyperBody for InterruptibleBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        this.goes_on = false;
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
            this.goes_on = matches!(&frame, Some(Ok(_))) && !body.is_end_stream();
            this.client.waits_for_body(false);
            if body.is_end_stream() {
                this.apart = None;
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)));
        }
        let client = &this.client;
        client.waits_for_body(true);
        if let (None, Some(connection_slot)) = (&this.apart, &this.connection_slot) {
            this.apart = connection_slot.waits(Waits::Body);
            if this.apart.is_none() {
                client.refuse_body();
                return Poll::Ready(Some(Err(io::ErrorKind::QuotaExceeded.into())));
            }
        }
        let let_go = this.let_go.get_or_insert_with(|| {
            let client = Arc::clone(client);
            Box::pin(async move { client.reads_no_more().await })
        });
        match let_go.as_mut().poll(cx) {
            Poll::Ready(()) => {
                this.let_go = None;
                Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HyperBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(SizeHint::default, HyperBody::size_hint)
    }
}

/// The reply to a request whose body nobody reads to its end would be lost if the connection closed
/// while the client still sends.
impl Drop for InterruptibleBody {
    fn drop(&mut self) {
        let Some(mut body) = self.body.take().filter(|_| self.goes_on) else {
            return;
        };
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let client = Arc::clone(&self.client);
        let read = async move {
            let mut bytes = 0;
            while bytes + body.size_hint().lower() <= UNREAD_BYTES_MAX {
                match body.frame().await {
                    Some(Ok(frame)) => bytes += frame.data_ref().map_or(0, Bytes::len) as u64,
                    Some(Err(_)) | None => return,
                }
            }
        };
        runtime.spawn(async move {
            tokio::select! {
                () = read => {}
                () = client.reads_no_more() => {}
                () = sleep(UNREAD_TIME_MAX) => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use hyper::Response;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::clients::Clients;

    /// Seconds for which a connection stays after a request with this head, of whose body nobody
    /// reads more than so many parts; one came. The server stops after so many seconds.
    async fn stays(head: &str, parts: usize, stops: u64) -> u64 {
        let clients = Arc::new(Clients::default());
        let present = clients.come("http", &Arc::from("a listener"), None, false);
        let client = Arc::clone(present.client());
        let refuse = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Arc::clone(&client));
            let mut body = interruptible(request).into_body();
            async move {
                for _ in 0..parts {
                    // It waits for a second, which does not come.
                    let _late = timeout(Duration::from_secs(1), body.frame()).await;
                }
                drop(body);
                Ok::<_, Infallible>(Response::new(Body::empty()))
            }
        });
        let (mut near, far) = duplex(4096);
        let connection = http1::Builder::new().serve_connection(TokioIo::new(far), refuse);
        let began = Instant::now();
        let served = tokio::spawn(async move {
            // A body that is cut short is an error or none.
            let _ended = connection.await;
        });
        tokio::spawn(async move {
            sleep(Duration::from_secs(stops)).await;
            clients.stop();
        });
        let request = format!("POST / HTTP/1.1\r\nhost: a\r\n{head}\r\n\r\na part");
        near.write_all(request.as_bytes()).await.expect("sent");
        let mut reply = String::new();
        near.read_to_string(&mut reply).await.expect("its end");
        served.await.expect("no panic");
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
        began.elapsed().as_secs()
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn an_unread_body_is_waited_for_within_bounds() {
        let long = UNREAD_TIME_MAX.as_secs();
        for (head, parts, stops, expected) in [
            ("content-length: 1048576", 0, 60, long),
            ("content-length: 1048577", 0, 60, 0),
            ("content-length: 1048576", 0, 3, 3),
            ("content-length: 1048576\r\nexpect: 100-continue", 0, 60, 0),
            // Refused in its middle: six bytes of it were read.
            ("content-length: 1048582", 1, 60, long),
            ("content-length: 1048583", 1, 60, 0),
            // Its client was too slow.
            ("content-length: 1048576", 2, 60, 1),
        ] {
            let at = format!("{head}, {parts}, {stops}");
            assert_eq!(stays(head, parts, stops).await, expected, "{at}");
        }
    }
}
