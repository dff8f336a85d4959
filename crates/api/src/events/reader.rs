//! One stream's end.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::broadcast::{self, error::RecvError};

use quintet_http::{ConnectionSlot, OpenStream};

/// The part that is still to come for a stream.
pub(crate) struct Reader {
    first: Option<Bytes>,
    events: broadcast::Receiver<Bytes>,
}

impl Reader {
    pub(super) fn new(first: Option<Bytes>, events: broadcast::Receiver<Bytes>) -> Self {
        Self { first, events }
    }

    /// The next event; `None`: it is over. A client that has not taken the one before, on
    /// `connection_slot`, or has fallen behind, is dropped and counted.
    async fn next(
        &mut self,
        connection_slot: Option<&Arc<ConnectionSlot>>,
        open: &OpenStream,
    ) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        match self.events.recv().await {
            Ok(event)
                if !connection_slot.is_some_and(|connection_slot| connection_slot.is_blocked()) =>
            {
                Some(event)
            }
            Err(RecvError::Closed) => None,
            Ok(_) | Err(RecvError::Lagged(_)) => {
                open.counts().is_slow();
                None
            }
        }
    }

    /// As a reply's body; `kept` is kept until it is over.
    pub(crate) fn body<K>(
        self,
        connection_slot: Option<Arc<ConnectionSlot>>,
        open: OpenStream,
        kept: K,
    ) -> Body
    where
        K: Send + 'static,
    {
        let all = (self, connection_slot, open, kept);
        Body::from_stream(stream::unfold(
            all,
            async |(mut reader, connection_slot, open, kept)| {
                let event = reader.next(connection_slot.as_ref(), &open).await?;
                Some((
                    Ok::<_, Infallible>(event),
                    (reader, connection_slot, open, kept),
                ))
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quintet_http::Clients;
    use quintet_http::Slots;
    use quintet_http::StreamCounts;

    #[tokio::test(flavor = "current_thread")]
    async fn a_client_that_does_not_read_is_dropped_and_counted() {
        let counts = Arc::new(StreamCounts::default());
        let open = OpenStream::new(&counts);
        let places = Slots::new(1, 1);
        let connection_slot = ConnectionSlot::new(&places, places.connection_slot().await);
        let present = Arc::new(Clients::default()).come("http", &"here".into(), None, false);
        let client = connection_slot
            .client
            .get_or_init(|| Arc::clone(present.client()));
        let (send, events) = broadcast::channel(2);
        let mut reader = Reader::new(Some(Bytes::from_static(b"all")), events);
        let notify = |text| send.send(Bytes::from_static(text)).expect("sent");
        notify(b"1");
        assert_eq!(
            reader.next(Some(&connection_slot), &open).await.as_deref(),
            Some(&b"all"[..])
        );
        assert_eq!(
            reader.next(Some(&connection_slot), &open).await.as_deref(),
            Some(&b"1"[..])
        );
        assert_eq!(counts.slow(), 0);
        client.set_unread(1);
        notify(b"2");
        assert_eq!(reader.next(Some(&connection_slot), &open).await, None);
        assert_eq!(counts.slow(), 1);
        client.set_unread(0);
        for _ in 0..3 {
            notify(b"3");
        }
        assert_eq!(reader.next(Some(&connection_slot), &open).await, None);
        assert_eq!(counts.slow(), 2);
        let mut last = Reader::new(None, send.subscribe());
        drop(send);
        assert_eq!(last.next(None, &open).await, None);
        assert_eq!((counts.slow(), counts.open()), (2, 1));
        drop(open);
        assert_eq!(counts.open(), 0);
    }
}
