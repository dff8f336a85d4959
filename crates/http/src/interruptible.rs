//! A request's body, for as long as its client may go on sending it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::Request;
use hyper::body::{Body as HyperBody, Frame, Incoming, SizeHint};

use crate::clients::Client;
use crate::slots::{Apart, ConnectionSlot, Waits};

/// Breaks off when the client ends its side of the connection, and when the server stops while
/// more of the body is waited for.
struct InterruptibleBody {
    body: Incoming,
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
    request.map(|body| match client {
        Some(client) if !body.is_end_stream() => Body::new(InterruptibleBody {
            body,
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
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.client.waits_for_body(false);
            if this.body.is_end_stream() {
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
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
