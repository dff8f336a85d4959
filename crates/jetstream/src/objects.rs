//! A bucket of JetStream's object store: the runs of a group, or its scripts' attachments.

use std::{
    hash::{BuildHasher as _, RandomState},
    io,
    time::Duration,
};

use async_nats::{
    HeaderMap,
    jetstream::{
        self, ErrorCode,
        context::{GetStreamErrorKind, PublishErrorKind},
        object_store::{self, DeleteErrorKind, InfoErrorKind, ObjectStore},
        stream::{Placement, StorageType},
    },
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE};
use futures_util::StreamExt as _;
use quintet_cluster::Blobs;
use quintet_log::StorageFile;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::{runtime::Handle, time::timeout};

use crate::{
    connect,
    fetch::{Place, fetch},
    line::Alive,
};

/// Bytes of an object in one message. Far below what servers take, far above what a message costs.
const CHUNK_BYTES: usize = 256 << 10;
/// How long an answer about a bucket may take; servers that elect a leader take up to ten seconds.
const ANSWER: Duration = Duration::from_secs(15);
/// How long the next name of a list may take. What lists is a consumer of the servers', which has
/// been silent for 18 s after its leader was killed; a list is requested again.
const NEXT: Duration = Duration::from_secs(10);
/// Times an object is begun to be read at most.
const TRIES: usize = 3;
/// Bytes a second that storing is given at least, before it counts as failed.
const SLOWEST: u64 = 256 << 10;

/// Files, replicated by JetStream. Made by [`JetStream::runs`](crate::JetStream::runs) and
/// [`JetStream::files`](crate::JetStream::files).
///
/// Every call waits, and so must not be made from an answer.
pub struct Objects {
    runtime: Handle,
    /// A call that waits for a thread that has ended would end the process.
    _alive: Alive,
    store: ObjectStore,
    context: jetstream::Context,
    stream: jetstream::stream::Stream,
    bucket: String,
}

/// The parts of [`Objects`].
pub(crate) type Opened = (ObjectStore, jetstream::Context, jetstream::stream::Stream);

/// Opens a bucket, or makes it.
pub(crate) async fn open(
    context: jetstream::Context,
    bucket: String,
    replicas: usize,
    tags: Vec<String>,
) -> Result<Opened, String> {
    let stream = format!("OBJ_{bucket}");
    // Nobody answers while there is no leader: who asks again soon hears soon of the next.
    let there = match timeout(connect::ANSWER, context.get_stream(&stream)).await {
        Err(_) => return Err("no answer".to_owned()),
        Ok(Ok(_)) => true,
        Ok(Err(error)) => match error.kind() {
            GetStreamErrorKind::JetStream(error)
                if error.error_code() == ErrorCode::STREAM_NOT_FOUND =>
            {
                false
            }
            _ => return Err(error.to_string()),
        },
    };
    let opened = async {
        let store = match there {
            true => context.get_object_store(&bucket).await.map_err(text)?,
            false => make(&context, bucket, replicas, tags).await?,
        };
        Ok((store, context.get_stream(stream).await.map_err(text)?))
    };
    match timeout(ANSWER, opened).await {
        Ok(opened) => opened.map(|(store, stream)| (store, context.clone(), stream)),
        Err(_) => Err("no answer".to_owned()),
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

async fn make(
    context: &jetstream::Context,
    bucket: String,
    replicas: usize,
    tags: Vec<String>,
) -> Result<ObjectStore, String> {
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
    let made = context.create_object_store(config).await;
    made.map_err(text)
}

/// A number that nobody else has.
fn random() -> u128 {
    let half = || u128::from(RandomState::new().hash_one(0_u8));
    half() << 64 | half()
}

/// As object stores note it.
fn digest_of(content: Sha256) -> String {
    format!("SHA-256={}", BASE64_URL_SAFE.encode(content.finalize()))
}

impl Objects {
    pub(crate) fn new((runtime, alive): (Handle, Alive), bucket: String, opened: Opened) -> Self {
        let (store, context, stream) = opened;
        Self {
            runtime,
            _alive: alive,
            store,
            context,
            stream,
            bucket,
        }
    }

    /// Keeps the content of a file under a name that nothing else has: `under`, a slash, and what
    /// is answered, 32 hexadecimal digits. Replicated when this returns.
    ///
    /// # Errors
    /// It is not kept, or nobody knows.
    pub fn put_new(&self, under: &str, content: &dyn StorageFile) -> io::Result<String> {
        let unique = format!("{:032x}", random());
        Blobs::put(self, &format!("{under}/{unique}"), content)?;
        Ok(unique)
    }

    /// Whether `name` has this very content, by its length and SHA-256.
    ///
    /// # Errors
    /// Nobody answers, or the content cannot be read.
    pub fn has(&self, name: &str, content: &dyn StorageFile) -> io::Result<bool> {
        let info = async { timeout(ANSWER, self.store.info(name)).await };
        let info = match self.runtime.block_on(info)? {
            Err(error) if error.kind() == InfoErrorKind::NotFound => return Ok(false),
            info => info.map_err(io::Error::other)?,
        };
        if info.deleted || info.size as u64 != content.len()? {
            return Ok(false);
        }
        let (mut at, mut piece) = (0, vec![0; CHUNK_BYTES]);
        let mut digest = Sha256::new();
        loop {
            let len = content.read_at(at, &mut piece)?;
            if len == 0 {
                break;
            }
            digest.update(&piece[..len]);
            at += len as u64;
        }
        Ok(info.digest == Some(digest_of(digest)))
    }

    /// Stores a file under `name`, whatever was or had been there. Only while nobody else stores
    /// anything.
    ///
    /// # Errors
    /// As [`Blobs::put`].
    pub fn put_over(&self, name: &str, content: &dyn StorageFile) -> io::Result<()> {
        let subject = self.described_by(name);
        // Its pieces, which nothing would name any more; then also what says that it was deleted.
        Blobs::delete(self, name)?;
        let purge = async { timeout(ANSWER, self.stream.purge().filter(subject)).await };
        self.runtime.block_on(purge)?.map_err(io::Error::other)?;
        Blobs::put(self, name, content)
    }

    /// Stores an object as the library does, but only under a name that never was an object's: a
    /// deposed owner that is late must not replace a run of its successor.
    async fn put(&self, name: &str, content: &dyn StorageFile) -> io::Result<()> {
        let len = content.len()?;
        let nuid = format!("{:032x}", random());
        let within = 2 * ANSWER + Duration::from_secs(len / SLOWEST);
        let stored = timeout(within, self.put_pieces(name, &nuid, content)).await;
        let stored = stored.unwrap_or_else(|late| Err(late.into()));
        if stored.is_err() {
            // Nothing names them; should this fail too, they stay until the bucket goes.
            let pieces = self.pieces(&nuid);
            let purge = async { self.stream.purge().filter(pieces).await };
            timeout(ANSWER, purge).await.map(drop).unwrap_or_default();
        }
        stored
    }

    fn pieces(&self, nuid: &str) -> String {
        format!("$O.{}.C.{nuid}", self.bucket)
    }

    async fn put_pieces(
        &self,
        name: &str,
        nuid: &str,
        content: &dyn StorageFile,
    ) -> io::Result<()> {
        let (mut at, mut chunks) = (0, 0);
        let mut digest = Sha256::new();
        loop {
            let mut piece = vec![0; CHUNK_BYTES];
            let len = content.read_at(at, &mut piece)?;
            if len == 0 {
                break;
            }
            piece.truncate(len);
            digest.update(&piece);
            (at, chunks) = (at + len as u64, chunks + 1);
            let sent = self.context.publish(self.pieces(nuid), piece.into()).await;
            sent.map_err(io::Error::other)?
                .await
                .map_err(io::Error::other)?;
        }
        let info = json!({
            "name": name,
            "bucket": self.bucket,
            "nuid": nuid,
            "size": at,
            "chunks": chunks,
            "digest": digest_of(digest),
            "options": { "max_chunk_size": CHUNK_BYTES },
        });
        let subject = self.described_by(name);
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Rollup", "sub");
        headers.insert("Nats-Expected-Last-Subject-Sequence", "0");
        let info = info.to_string().into();
        let sent = self.context.publish_with_headers(subject, headers, info);
        let sent = sent.await.map_err(io::Error::other)?;
        sent.await.map(drop).map_err(|error| match error.kind() {
            PublishErrorKind::WrongLastSequence => {
                io::Error::new(io::ErrorKind::AlreadyExists, format!("{name} was used"))
            }
            _ => io::Error::other(error),
        })
    }

    fn described_by(&self, name: &str) -> String {
        format!("$O.{}.M.{}", self.bucket, BASE64_URL_SAFE.encode(name))
    }
}

impl Blobs for Objects {
    fn put(&self, name: &str, content: &dyn StorageFile) -> io::Result<()> {
        self.runtime.block_on(self.put(name, content))
    }

    fn get(&self, name: &str, to: &dyn StorageFile) -> io::Result<bool> {
        let (subject, pieces) = (self.described_by(name), format!("$O.{}.C", self.bucket));
        let mut tries = 0;
        loop {
            tries += 1;
            let place = Place {
                stream: &self.stream,
                subject: &subject,
                pieces: &pieces,
            };
            match self.runtime.block_on(fetch(place, to)) {
                Err(error) if tries < TRIES && error.kind() == io::ErrorKind::InvalidData => {
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
            while let Some(object) = timeout(NEXT, list.next()).await? {
                names.push(object.map_err(io::Error::other)?.name);
            }
            Ok(names)
        })
    }
}
