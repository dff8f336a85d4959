//! Files in: a body that arrives in pieces, as a reader for the thread that
//! stores it.

use std::io::{self, Read};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Pieces on their way between the two sides. Hyper's are at most as large as
/// its buffer.
const PIECES: usize = 4;

/// The receiving end; blocks its thread until a piece is there.
pub struct Pieces {
    from: Receiver<io::Result<Bytes>>,
    current: Bytes,
    ended: bool,
}

/// The sending end.
pub struct Feed {
    to: Sender<io::Result<Bytes>>,
}

/// Both ends. Dropping the feed without [`Feed::end`] is an error for the
/// reader: what was cut short must not pass for a whole file.
pub fn pipe() -> (Feed, Pieces) {
    let (to, from) = channel(PIECES);
    let pieces = Pieces {
        from,
        current: Bytes::new(),
        ended: false,
    };
    (Feed { to }, pieces)
}

impl Feed {
    /// Hands a piece over; false: nobody reads any more.
    pub async fn give(&self, piece: Bytes) -> bool {
        piece.is_empty() || self.to.send(Ok(piece)).await.is_ok()
    }

    /// All of it was given.
    pub async fn end(self) {
        // The empty piece is the end. A reader that has stopped needs none.
        let _gone = self.to.send(Ok(Bytes::new())).await;
    }

    /// It broke off.
    pub async fn fail(self, error: io::Error) {
        let _gone = self.to.send(Err(error)).await;
    }
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.current.is_empty() && !self.ended {
            match self.from.blocking_recv() {
                Some(piece) => self.current = piece?,
                None => return Err(broken_off()),
            }
            self.ended = self.current.is_empty();
        }
        let count = into.len().min(self.current.len());
        self.current.copy_to_slice(&mut into[..count]);
        Ok(count)
    }
}

/// The client went away in the middle.
pub fn broken_off() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the upload broke off")
}

/// The client said nothing for too long.
pub fn too_slow(idle: Duration) -> io::Error {
    let text = format!("nothing came for {} s", idle.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(feed: impl FnOnce(Feed) + Send) -> io::Result<Vec<u8>> {
        let (to, mut from) = pipe();
        std::thread::scope(|scope| {
            scope.spawn(move || feed(to));
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).map(|_| bytes)
        })
    }

    fn block<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime")
            .block_on(future)
    }

    #[test]
    fn pieces_come_out_as_they_went_in() {
        let all = read(|feed| {
            block(async {
                for n in 0..100u8 {
                    assert!(feed.give(Bytes::from(vec![n; 1000])).await);
                    assert!(feed.give(Bytes::new()).await);
                }
                feed.end().await;
            });
        });
        let all = all.expect("whole");
        assert_eq!(all.len(), 100_000);
        assert!(
            all.iter()
                .enumerate()
                .all(|(at, b)| usize::from(*b) == at / 1000)
        );
    }

    #[test]
    fn an_upload_that_breaks_off_is_an_error() {
        let cut = read(|feed| assert!(block(feed.give(Bytes::from_static(b"half")))));
        assert_eq!(cut.expect_err("cut").kind(), io::ErrorKind::UnexpectedEof);
        let late = read(|feed| block(feed.fail(too_slow(Duration::from_secs(9)))));
        assert_eq!(late.expect_err("late").kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_reader_that_goes_stops_the_feed() {
        let (feed, pieces) = pipe();
        drop(pieces);
        assert!(!block(feed.give(Bytes::from_static(b"x"))));
    }
}
