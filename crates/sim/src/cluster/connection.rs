//! A process's connection to the stream: answers wait while the process stands still, and every
//! question is a step at which it may do so.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use quintet_cluster::{
    Answer, Distrusted, Ends, EntryLookup, ReplyFn, Seq, Stream, Tail, TailEvent,
};

use super::{Link, Process};

/// A connection of this process over this link.
pub struct Connection {
    pub process: Process,
    pub link: Link,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    fn wrap<T: Send + 'static>(&self, callback: ReplyFn<T>) -> ReplyFn<T> {
        let process = self.process.clone();
        Box::new(move |answer| process.later(move || callback(answer)))
    }
}

impl Stream for Connection {
    fn name(&self) -> String {
        self.link.name()
    }

    fn append(&self, expected: Seq, entry: Bytes, callback: ReplyFn<Answer>) {
        self.process.step();
        self.link.append(expected, entry, self.wrap(callback));
    }

    fn ends(&self, callback: ReplyFn<Option<Ends>>) {
        self.process.step();
        self.link.ends(self.wrap(callback));
    }

    fn get(&self, seq: Seq, callback: ReplyFn<EntryLookup>) {
        self.process.step();
        self.link.get(seq, self.wrap(callback));
    }

    fn tail(&self, from: Seq, each: Box<dyn FnMut(TailEvent) + Send>) -> Tail {
        let (process, each) = (self.process.clone(), Arc::new(Mutex::new(each)));
        let waiting = Arc::new(Mutex::new(VecDeque::new()));
        let each = move |event| {
            lock(&waiting).push_back(event);
            let (each, waiting) = (Arc::clone(&each), Arc::clone(&waiting));
            process.later(move || {
                let next = lock(&waiting).pop_front();
                if let Some(event) = next {
                    lock(&each)(event);
                }
            });
        };
        self.link.tail(from, Box::new(each))
    }

    fn purge_below(&self, seq: Seq, callback: ReplyFn<bool>) {
        self.process.step();
        self.link.purge_below(seq, self.wrap(callback));
    }

    fn distrust(
        &self,
        ends: Ends,
        bad: &[String],
        doubted: &[String],
        callback: ReplyFn<Distrusted>,
    ) {
        self.process.step();
        self.link.distrust(ends, bad, doubted, self.wrap(callback));
    }
}
