//! A connection whose client has to take what it asked for.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::clients::Client;

/// Told the first byte that comes.
pub(crate) type First = Box<dyn FnOnce(u8) + Send>;

/// Ends the connection if nothing of a reply could be written for a time.
/// Reading has limits where it is known what is read.
pub(crate) struct Paced<S> {
    inner: S,
    idle: Duration,
    /// Told the first byte, once.
    first: Option<First>,
    /// A client that ends its side is still given the reply to its request.
    answers: bool,
    /// Knows how many bytes wait, and when any moved.
    client: Arc<Client>,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Paced<S> {
    pub(crate) fn new(inner: S, idle: Duration, first: First, client: Arc<Client>) -> Self {
        Self {
            inner,
            idle,
            first: Some(first),
            answers: false,
            client,
            waiting: None,
        }
    }

    /// A client that ends its side in the middle of a request is still answered; whoever waits
    /// for it is told.
    pub(crate) fn answering(self, answers: bool) -> Self {
        Self { answers, ..self }
    }

    /// Lets the result of a write through, or turns one that waits too long
    /// into an error; `bytes` were to be written.
    fn pace<T>(
        &mut self,
        cx: &mut Context<'_>,
        bytes: usize,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.client.moves();
            if self.waiting.take().is_some() {
                self.client.set_unread(0);
            }
            return written;
        }
        self.client.set_unread(bytes);
        let idle = self.idle;
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + idle)));
        match waiting.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, into);
        if into.filled().len() > before {
            self.client.moves();
        }
        if let Some(&byte) = into.filled().get(before)
            && let Some(first) = self.first.take()
        {
            first(byte);
        }
        let came = into.filled().len() > before || into.remaining() == 0;
        match read {
            Poll::Ready(Ok(())) if came => read,
            Poll::Ready(_) if self.answers && self.client.ends(cx.waker()) => Poll::Pending,
            Poll::Ready(_) | Poll::Pending => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, from);
        self.pace(cx, from.len(), written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, from);
        let bytes = from.iter().map(|slice| slice.len()).sum();
        self.pace(cx, bytes, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Clients;
    use tokio::io::AsyncWriteExt as _;

    #[test]
    fn a_reader_that_never_reads_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let (ours, _theirs) = tokio::io::duplex(10);
            let clients = Arc::new(Clients::default());
            let present = clients.come("http", &"here".into(), None, false);
            let client = Arc::clone(present.client());
            let mut paced = Paced::new(ours, Duration::from_secs(30), Box::new(|_| {}), client);
            let began = Instant::now();
            let error = paced.write_all(&[0; 100]).await.expect_err("given up");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(began.elapsed().as_secs(), 30);
            // Ten of the hundred went.
            assert_eq!(clients.list()[0].unread_bytes, 90);
        });
    }
}
