//! A key-value bucket: what a cluster's nodes tell each other at a human pace.
//!
//! Source: the servers' key-value stores are streams with a subject for each key, of which the
//! newest message counts (ADR-8 of their designs).

use bytes::Bytes;
use serde_json::json;

use crate::{
    JetStream, Result,
    api::{self, Info},
    client::Question,
    connect::ANSWER,
};

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
    /// [`crate::Error::Refused`], [`crate::Error::Silent`].
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
        let question = Question::new(subject, Bytes::new(), ANSWER);
        let there = self.wait(question, api::info, &[api::NO_STREAM])?;
        if there.is_none() {
            let subject = format!("$JS.API.STREAM.CREATE.KV_{name}");
            let question = Question::new(subject, config.to_string(), 10 * ANSWER);
            // Where it is in use somebody set it up otherwise, and may.
            self.wait(question, api::info, &[IN_USE])?;
        }
        Ok(bucket)
    }
}

impl Bucket<'_> {
    /// The value of a key, if it has one.
    ///
    /// # Errors
    /// [`crate::Error::Refused`], [`crate::Error::Silent`].
    pub fn get(&self, key: &str) -> Result<Option<Value>> {
        let name = &self.name;
        let subject = format!("$JS.API.STREAM.MSG.GET.KV_{name}");
        let wanted = json!({ "last_by_subj": format!("$KV.{name}.{key}") });
        let question = Question::new(subject, wanted.to_string(), ANSWER);
        let excused = &[api::NO_MESSAGE];
        let stored = self.jetstream.wait(question, api::stored, excused)?;
        Ok(stored.map(|(revision, bytes)| Value { bytes, revision }))
    }

    /// The keys that begin with `prefix`, which ends with a dot.
    ///
    /// # Errors
    /// [`crate::Error::Refused`], [`crate::Error::Silent`].
    pub fn keys(&self, prefix: &str) -> Result<Vec<String>> {
        let name = &self.name;
        let subject = format!("$JS.API.STREAM.INFO.KV_{name}");
        let wanted = json!({ "subjects_filter": format!("$KV.{name}.{prefix}>") });
        let question = Question::new(subject, wanted.to_string(), ANSWER);
        let info = self.jetstream.wait(question, api::info, &[])?;
        let head = format!("$KV.{name}.");
        let keys = info.iter().flat_map(Info::subjects);
        let keys = keys.filter_map(|key| key.strip_prefix(&head));
        Ok(keys.map(str::to_owned).collect())
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// [`crate::Error::Refused`], [`crate::Error::Silent`]; then nobody knows whether it has it.
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
        let question = Question {
            header: behind.map(|behind| ("Nats-Expected-Last-Subject-Sequence", behind)),
            ..Question::new(subject, bytes, 5 * ANSWER)
        };
        let excused: &[u64] = if behind.is_some() { &WRONG_LAST } else { &[] };
        let stored = self.jetstream.wait(question, api::acknowledged, excused)?;
        Ok(stored.is_some())
    }
}
