//! A bucket of JetStream's object store as the runs of a group.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use async_nats::jetstream::{
    self,
    object_store::{self, DeleteErrorKind, GetErrorKind, ObjectMetadata, ObjectStore},
    stream::{Placement, StorageType},
};
use futures_util::StreamExt as _;
use quintet_cluster::Blobs;
use quintet_log::StorageFile;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, ReadBuf},
    runtime::Handle,
    time::timeout,
};

/// Bytes of an object in one message. Far below what servers take, far above what a message costs.
const CHUNK_BYTES: usize = 256 << 10;
/// How long an answer about a bucket may take; servers that elect a leader take up to ten seconds.
const ANSWER: Duration = Duration::from_secs(15);
/// How long the next piece of an object may take. What reads it is a consumer of the servers',
/// which has been silent for 18 s after its leader was killed.
const PIECE: Duration = Duration::from_secs(10);
/// Times an object is begun to be read at most.
const TRIES: usize = 5;
/// Bytes a second that storing is given at least, before it counts as failed.
const SLOWEST: u64 = 256 << 10;

/// Run files, replicated by JetStream. Made by [`JetStream::runs`](crate::JetStream::runs).
///
/// Every call waits, and so must not be made from an answer.
pub struct Objects {
    runtime: Handle,
    store: ObjectStore,
}

/// Opens a bucket, or makes it.
pub(crate) async fn open(
    context: jetstream::Context,
    bucket: String,
    replicas: usize,
    tags: Vec<String>,
) -> Result<ObjectStore, String> {
    let asked = timeout(ANSWER, context.get_object_store(&bucket));
    if let Ok(Ok(there)) = asked.await {
        return Ok(there);
    }
    let config = object_store::Config {
        bucket,
        storage: StorageType::File,
        num_replicas: replicas,
        placement: (!tags.is_empty()).then_some(Placement {
            cluster: None,
            tags,
        }),
        // Limits of bytes are the servers' and the account's.
        max_bytes: -1,
        ..object_store::Config::default()
    };
    match timeout(ANSWER, context.create_object_store(config)).await {
        Ok(made) => made.map_err(|error| error.to_string()),
        Err(_) => Err("no answer".to_owned()),
    }
}

impl Objects {
    pub(crate) fn new(runtime: Handle, store: ObjectStore) -> Self {
        Self { runtime, store }
    }

    async fn put(&self, name: &str, content: &dyn StorageFile) -> io::Result<()> {
        let len = content.len()?;
        let meta = ObjectMetadata {
            name: name.to_owned(),
            chunk_size: Some(CHUNK_BYTES),
            ..ObjectMetadata::default()
        };
        let mut content = Content { content, at: 0 };
        let within = 2 * ANSWER + Duration::from_secs(len / SLOWEST);
        let put = timeout(within, self.store.put(meta, &mut content)).await?;
        put.map(drop).map_err(io::Error::other)
    }

    /// One try.
    async fn read(&self, name: &str, to: &dyn StorageFile) -> io::Result<bool> {
        let mut object = match timeout(ANSWER, self.store.get(name)).await? {
            Ok(object) => object,
            Err(error) if error.kind() == GetErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(io::Error::other(error)),
        };
        to.set_len(0)?;
        let mut piece = vec![0; CHUNK_BYTES];
        let mut at = 0;
        loop {
            // What was read is compared with its checksum before the last piece comes.
            let len = timeout(PIECE, object.read(&mut piece)).await??;
            if len == 0 {
                return match at == object.info().size as u64 {
                    true => Ok(true),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
            let mut rest = &piece[..len];
            while !rest.is_empty() {
                let written = to.write_at(at, rest)?;
                if written == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                at += written as u64;
                rest = &rest[written..];
            }
        }
    }
}

impl Blobs for Objects {
    fn put(&self, name: &str, content: &dyn StorageFile) -> io::Result<()> {
        self.runtime.block_on(self.put(name, content))
    }

    fn get(&self, name: &str, to: &dyn StorageFile) -> io::Result<bool> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.runtime.block_on(self.read(name, to)) {
                Err(error) if tries < TRIES && error.kind() != io::ErrorKind::StorageFull => {
                    tracing::info!("reading {name} begins again: {error}");
                }
                done => return done,
            }
        }
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        let deleted = async { timeout(ANSWER, self.store.delete(name)).await };
        match self.runtime.block_on(deleted)? {
            Err(error) if error.kind() == DeleteErrorKind::NotFound => Ok(()),
            done => done.map_err(io::Error::other),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.runtime.block_on(async {
            let list = timeout(ANSWER, self.store.list()).await?;
            let mut list = list.map_err(io::Error::other)?;
            let mut names = Vec::new();
            while let Some(object) = timeout(PIECE, list.next()).await? {
                names.push(object.map_err(io::Error::other)?.name);
            }
            Ok(names)
        })
    }
}

/// A file as the library reads it. Reading it waits for the disk, on the thread of whoever asked.
struct Content<'a> {
    content: &'a dyn StorageFile,
    at: u64,
}

impl AsyncRead for Content<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let len = self.content.read_at(self.at, buf.initialize_unfilled())?;
        buf.advance(len);
        self.at += len as u64;
        Poll::Ready(Ok(()))
    }
}
