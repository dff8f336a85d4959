//! A key-value bucket: what a cluster's nodes tell each other at a human pace.
//!
//! Source: the servers' key-value stores are streams with a subject for each key, of which the
//! newest message counts (ADR-8 of their designs).

use bytes::Bytes;
use serde_json::json;

use crate::{
    Error, JetStream, Result,
    api::{self, Refused},
    connect::ANSWER,
};

/// "no message found".
const NO_MESSAGE: u64 = 10_037;
/// "wrong last sequence", and without the number.
const WRONG_LAST: [u64; 2] = [10_071, 10_164];
/// "stream name already in use with a different configuration".
const IN_USE: u64 = 10_058;

/// A key-value bucket in JetStream.
pub struct Bucket<'a> {
    jetstream: &'a JetStream,
    name: String,
}

/// A key's newest value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub bytes: Bytes,
    /// Its number in the bucket; each change has a higher one.
    pub revision: u64,
}

impl JetStream {
    /// The bucket called `name`, made if there is none.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Silent`].
    pub fn bucket(&self, name: &str, replicas: usize) -> Result<Bucket<'_>> {
        let config = json!({
            "name": format!("KV_{name}"),
            "subjects": [format!("$KV.{name}.>")],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "num_replicas": replicas,
            "max_msgs_per_subject": 1,
            "max_msgs": -1,
            "max_bytes": -1,
            "allow_rollup_hdrs": true,
            "deny_delete": true,
            "allow_direct": true,
        });
        let bucket = Bucket {
            jetstream: self,
            name: name.to_owned(),
        };
        // While the servers have no leader they leave a question without an answer for as long as
        // it is waited for, and making takes long: one that is there is only asked for.
        let subject = format!("$JS.API.STREAM.INFO.KV_{name}");
        let reply = self.wait(&subject, Bytes::new(), None, ANSWER)?;
        match api::info(&reply) {
            Some(Ok(_)) => return Ok(bucket),
            Some(Err(refused)) if api::is_absent(&refused) => {}
            Some(Err(refused)) => return Err(Error::Refused(subject, refused)),
            None => return Err(Error::Silent),
        }
        let subject = format!("$JS.API.STREAM.CREATE.KV_{name}");
        let reply = self.wait(&subject, config.to_string().into(), None, 10 * ANSWER)?;
        match api::info(&reply) {
            Some(Ok(_)) => {}
            // Somebody set it up otherwise, and may.
            Some(Err(refused)) if refused.err_code == IN_USE => {}
            Some(Err(refused)) => return Err(Error::Refused(subject, refused)),
            None => return Err(Error::Silent),
        }
        Ok(bucket)
    }
}

impl Bucket<'_> {
    /// The value of a key, if it has one.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Silent`].
    pub fn get(&self, key: &str) -> Result<Option<Value>> {
        let name = &self.name;
        let subject = format!("$JS.API.STREAM.MSG.GET.KV_{name}");
        let question = json!({ "last_by_subj": format!("$KV.{name}.{key}") });
        let reply = self
            .jetstream
            .wait(&subject, question.to_string().into(), None, ANSWER)?;
        match value(&reply) {
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(refused)) if refused.err_code == NO_MESSAGE => Ok(None),
            Some(Err(refused)) => Err(Error::Refused(subject, refused)),
            None => Err(Error::Silent),
        }
    }

    /// The keys that begin with `prefix`, which ends with a dot.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Silent`].
    pub fn keys(&self, prefix: &str) -> Result<Vec<String>> {
        let name = &self.name;
        let subject = format!("$JS.API.STREAM.INFO.KV_{name}");
        let question = json!({ "subjects_filter": format!("$KV.{name}.{prefix}>") });
        let reply = self
            .jetstream
            .wait(&subject, question.to_string().into(), None, ANSWER)?;
        match api::info(&reply) {
            Some(Ok(info)) => {
                let head = format!("$KV.{name}.");
                let keys = info.subjects().filter_map(|key| key.strip_prefix(&head));
                Ok(keys.map(str::to_owned).collect())
            }
            Some(Err(refused)) => Err(Error::Refused(subject, refused)),
            None => Err(Error::Silent),
        }
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Silent`]; then nobody knows whether it has it.
    pub fn put(&self, key: &str, bytes: Bytes) -> Result<()> {
        self.publish(key, bytes, None).map(|_| ())
    }

    /// Gives a key a value if its newest is of `revision`; 0: if it never had one. False: it is
    /// not.
    ///
    /// # Errors
    /// As [`Bucket::put`].
    pub fn put_behind(&self, key: &str, revision: u64, bytes: Bytes) -> Result<bool> {
        self.publish(key, bytes, Some(revision))
    }

    fn publish(&self, key: &str, bytes: Bytes, behind: Option<u64>) -> Result<bool> {
        let subject = format!("$KV.{}.{key}", self.name);
        let behind = behind.map(|behind| ("Nats-Expected-Last-Subject-Sequence", behind));
        let reply = self.jetstream.wait(&subject, bytes, behind, 5 * ANSWER)?;
        match api::acknowledged(&reply) {
            Some(Ok(())) => Ok(true),
            Some(Err(refused)) if WRONG_LAST.contains(&refused.err_code) => Ok(false),
            Some(Err(refused)) => Err(Error::Refused(subject, refused)),
            None => Err(Error::Silent),
        }
    }
}

fn value(reply: &[u8]) -> Option<Result<Value, Refused>> {
    let stored = api::stored(reply)?;
    Some(stored.map(|(revision, bytes)| Value { bytes, revision }))
}
