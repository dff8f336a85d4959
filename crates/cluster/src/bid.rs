//! Claiming a log behind what was read of it: the claim, then its padding.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use quintet_log::{Epoch, Position, Recovery, Stamp};

use crate::{
    Claim, ClusterId, Fences, Limits, PADDING, Reign, Result, Seq, Stream, StreamLog, World,
    Writer,
    appender::Appender,
    copy::Copy,
    entry::Author,
    resolve::{Kind, Ours},
    window::Window,
};

/// The candidate, and its way to append.
#[derive(Clone)]
pub(crate) struct Claimant {
    pub(crate) stream: Arc<dyn Stream>,
    pub(crate) world: Arc<dyn World>,
    pub(crate) cluster: ClusterId,
    pub(crate) writer: Writer,
    pub(crate) node: String,
    pub(crate) peer_address: String,
    pub(crate) limits: Limits,
    pub(crate) lease: Duration,
    pub(crate) fences: Fences,
}

/// A claim that is on its way, or its padding.
pub(crate) struct Bid {
    pub(crate) appender: Arc<Appender>,
    author: Author,
    place: Seq,
    entry: Bytes,
    padding: bool,
}

impl Claimant {
    /// Appends a claim behind what was read, at this time.
    pub(crate) fn claim(&self, copy: &Copy, time_ms: u64) -> Bid {
        let (writer, epoch) = (self.writer, Epoch(copy.epoch().0 + 1));
        let (end, segment) = copy.place();
        let mut author = Author {
            cluster: self.cluster,
            writer,
            epoch,
            chain: copy.tip().map_or(0, |tip| tip.chain),
        };
        let claim = Claim {
            epoch,
            writer,
            node: self.node.clone(),
            peer_address: self.peer_address.clone(),
        };
        let mut frame = Reign::Claim(claim, Some(copy.beginning())).frame();
        // The frames' epochs are the caller's, who begins the new one.
        let stamp = Stamp {
            epoch: copy.recovery.last_epoch,
            time_ms,
        };
        let sealed = frame.sealed(end, stamp);
        let after = Position(end.0 + sealed.len() as u64);
        let entries = author.entries(sealed, end, segment, !copy.has_begun());
        let entries: Vec<Bytes> = entries.collect();
        let ours = Ours {
            cluster: self.cluster,
            epoch,
            writer,
        };
        let place = copy.next();
        let mut window = Window::new(ours, self.limits, place, end);
        if !self.fences.in_order {
            window.count_out_of_order();
        }
        let (stream, world) = (Arc::clone(&self.stream), Arc::clone(&self.world));
        let appender = Appender::new(stream, world, epoch, self.lease, window);
        appender.push(entries.iter().cloned(), Kind::Claim, after);
        Bid {
            appender,
            author,
            place,
            entry: entries[0].clone(),
            padding: !self.fences.padding,
        }
    }
}

impl Bid {
    /// Whether all that was sent is settled.
    ///
    /// # Errors
    /// [`quintet_log::LogError::Fenced`] when the entry of another stands in the place of one.
    pub(crate) fn is_settled(&self) -> Result<bool> {
        self.appender.is_settled()
    }

    /// The outcome of the sent entries is known. True: the claim stands, and the positions behind
    /// it are being filled; false: they are filled.
    ///
    /// # Errors
    /// The mirror cannot be written.
    pub(crate) fn pad(&mut self, copy: &mut Copy) -> Result<bool> {
        if copy.next() == self.place {
            copy.take(self.place, &self.entry, &mut |_| Ok(()))?;
        }
        if std::mem::replace(&mut self.padding, true) {
            return Ok(false);
        }
        let (end, segment) = copy.place();
        let padding = (0..PADDING).map(|_| self.author.padding(end, segment));
        self.appender.push(padding, Kind::Padding, end);
        Ok(true)
    }

    /// The log, when nothing is left to fill.
    pub(crate) fn finish(self, copy: Copy) -> (StreamLog, Recovery) {
        copy.finish(self.appender, self.author)
    }
}
