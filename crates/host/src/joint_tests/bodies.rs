//! Bodies that lie in the log as chunks, as a connection stores and sends them.

use std::sync::atomic::{AtomicU64, Ordering};

use quintet_log::{FrameBuf, FrameKind};
use quintet_types::{Body, ChunkPlace, Command, Outcome, Put};

use crate::{Core, begin_chunk};

/// Bytes of a chunk; of a long body a third.
const CHUNK: usize = 48;

/// A command with its body in the log, if that is longer than a chunk. None: the log was lost.
pub(super) fn uploaded(core: &Core, command: Command, written: &AtomicU64) -> Option<Command> {
    if let Command::Put(put) = command {
        let body = upload(core, put.body, written)?;
        Some(Command::Put(Put { body, ..put }))
    } else if let Command::Transaction(mut transaction) = command {
        if let Some(then) = transaction.then.take() {
            transaction.then = Some(Box::new(uploaded(core, *then, written)?));
        }
        Some(Command::Transaction(transaction))
    } else {
        Some(command)
    }
}

fn upload(core: &Core, body: Body, written: &AtomicU64) -> Option<Body> {
    let bytes = match &body {
        Body::Small(bytes) if bytes.len() > CHUNK => bytes,
        Body::Small(_) | Body::Large(_) => return Some(body),
    };
    let large = core.create_body(bytes.len() as u64);
    let mut frame = FrameBuf::new(FrameKind::Body);
    for (index, chunk) in (0..).zip(bytes.chunks(CHUNK.max(bytes.len() / 3))) {
        begin_chunk(&mut frame, large.id(), index);
        frame.payload_mut().extend_from_slice(chunk);
        core.append_chunk(&mut frame, chunk.len(), &large).ok()?;
        written.fetch_add(1, Ordering::Relaxed);
    }
    Some(Body::Large(large))
}

/// An outcome with the bytes of its messages' bodies, wherever these lie.
pub(super) fn downloaded(core: &Core, mut outcome: Outcome) -> Outcome {
    if let Outcome::Messages(messages) = &mut outcome {
        for message in messages.iter_mut() {
            if let Body::Large(large) = &message.body {
                let chunk = |place: &ChunkPlace| {
                    let read = core.body_source().read(place);
                    let bytes = read.expect("a chunk that is in the log or a run");
                    bytes[bytes.len() - place.len as usize..].to_vec()
                };
                let bytes: Vec<u8> = large.places().iter().flat_map(chunk).collect();
                assert_eq!(bytes.len() as u64, large.len(), "body {}", large.id());
                message.body = Body::new(&bytes);
            }
        }
    }
    outcome
}
