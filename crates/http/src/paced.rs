//! A connection whose client has to take what it asked for.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::sleep;

use crate::clients::Client;

/// A reply of which the client takes nothing for so long is given up when the server stops.
const WHEN_STOPPING: Duration = Duration::from_secs(1);

/// Told the first byte that comes.
pub(crate) type First = Box<dyn FnOnce(u8) + Send>;

/// Ends the connection if nothing of a reply could be written for a time, a shorter one while the
/// server stops. Reading has limits where it is known what is read.
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
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
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

    /// A client that ends its side in the middle of a request is still answered; a thread that
    /// waits for it is notified.
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
        let (idle, client) = (self.idle, &self.client);
        let waiting = self.waiting.get_or_insert_with(|| {
            let client = Arc::clone(client);
            Box::pin(async move {
                let stops = async {
                    client.is_stopped().await;
                    sleep(WHEN_STOPPING).await;
                };
                tokio::select! {
                    () = sleep(idle) => {}
                    () = stops => {}
                }
            })
        });
        match waiting.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }

    /// The same for what TLS holds back: nobody knows how many bytes.
    fn pace_rest(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        match written.is_ready() && self.waiting.is_none() {
            true => written,
            false => self.pace(cx, 1, written),
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
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.pace_rest(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.pace_rest(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Clients;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::Instant;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_client_that_never_reads_is_disconnected() {
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
        assert_eq!(clients.list(0, 9)[0].unread_bytes, 90);
    }

    /// A stop gives up who reads nothing for a second, and nobody who does.
    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_stop_waits_for_readers_only() {
        let (ours, mut theirs) = tokio::io::duplex(10);
        let clients = Arc::new(Clients::default());
        let present = clients.come("http", &"here".into(), None, false);
        let client = Arc::clone(present.client());
        let mut paced = Paced::new(ours, Duration::from_secs(30), Box::new(|_| {}), client);
        let began = Instant::now();
        let writes = async { paced.write_all(&[0; 100]).await.expect_err("given up") };
        let reads = async {
            sleep(Duration::from_secs(7)).await;
            clients.stop();
            for _ in 0..5 {
                sleep(Duration::from_millis(800)).await;
                theirs.read_exact(&mut [0; 10]).await.expect("a part");
            }
        };
        let (error, ()) = tokio::join!(writes, reads);
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // Seven seconds, five times 0.8, and one.
        assert_eq!(began.elapsed().as_secs(), 12);
        // Sixty of the hundred went.
        assert_eq!(clients.list(0, 9)[0].unread_bytes, 40);
    }
}
