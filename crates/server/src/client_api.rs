//! The client API of the running server.

use std::io::{self, ErrorKind, Read};

use quintet_client::{Arrive, ClientApi, OnOutcome, StoreError};
use quintet_edge::Upload;
use quintet_types::{Body, Caller, ClientId, Command, Message, Ms, Name, Principal};
use quintet_wire::STREAM_OVER;

use crate::server::Server;

impl ClientApi for Server {
    fn now(&self) -> Ms {
        self.core.clock.now()
    }

    fn wall(&self) -> Ms {
        self.core.clock.wall()
    }

    fn epoch(&self) -> u64 {
        self.core.epoch
    }

    fn enter(&self, arrive: Arrive) -> ClientId {
        self.dispatchers.enter(arrive)
    }

    fn enter_here(&self, arrive: Arrive) -> ClientId {
        self.dispatchers.enter_here(arrive)
    }

    fn leave(&self, client_id: ClientId) {
        self.dispatchers.leave(client_id);
    }

    fn submit(&self, caller: Caller, command: Command, reply: OnOutcome) {
        self.dispatchers.submit(caller, command, reply);
    }

    fn restore(&self, client_id: ClientId, messages: Vec<Message>) {
        let caller = Caller::server(client_id);
        self.core
            .with_access(|access| access.restore(caller, messages));
    }

    fn read(&self, body: &Body, from: u64, into: &mut [u8]) -> io::Result<usize> {
        match body {
            Body::Small(bytes) => {
                let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
                let count = into.len().min(bytes.len() - from);
                into[..count].copy_from_slice(&bytes[from..from + count]);
                Ok(count)
            }
            Body::Large(large) => self.dispatchers.read_large(large, from, into),
        }
    }

    fn store(&self, queue: &Name, len: u64, source: &mut dyn Read) -> Result<Body, StoreError> {
        if len <= STREAM_OVER {
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
            source.read_exact(&mut bytes).map_err(StoreError::Source)?;
            return Ok(Body::new(&bytes));
        }
        if let Some(command_error) = self.edge.refuses_body(Principal::SERVER, queue, len) {
            return Err(StoreError::Refused(command_error));
        }
        let (core, chunk) = (&self.core, self.edge.limits.chunk_bytes);
        let mut upload = Upload::new(core, &self.edge.uploads, len, None);
        let mut buffer = vec![0; 64 << 10];
        let mut left = len;
        while left > 0 {
            let most = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let read = match source.read(&mut buffer[..most]) {
                Ok(0) => return Err(StoreError::Source(ErrorKind::UnexpectedEof.into())),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(StoreError::Source(error)),
            };
            left -= read as u64;
            let mut fed = 0;
            while fed < read {
                fed += upload.feed(core, chunk, &buffer[fed..read]).0;
            }
        }
        upload
            .finish()
            .map(Body::Large)
            .map_err(StoreError::Refused)
    }
}
