//! Messages: made, shown, deleted.

use std::collections::VecDeque;
use std::io::Read;
use std::path::PathBuf;

use quintet_client::{BodyBytes, ScopedClient, Slices, ask_named};
use quintet_types::{
    At, Attr, Body, BulkOp, By, Command, Edit, ListState, Message, Ms, Name, Outcome, Peek, Put,
    PutMore, State, When, locked,
};
use serde_json::Value;

use crate::fault::Fault;
use crate::ids::{parse_short, short_id};
use crate::new::{Method, NewMessage};
use crate::paths;
use crate::record::{self, Around, STATES, attr_text, set, state_word, status_line, status_text};
use crate::service::Rq;

/// Messages looked through at most for a list or a search.
const SCANNED_MAX: usize = 100_000;

/// Messages asked for at a time.
const PAGE: u32 = 256;

/// Bytes of the messages that a search finds: it ends behind the message that has more.
pub const SEARCH_BYTES: u64 = 1 << 20;

/// Addresses of webhooks of a message at most: each becomes a message with a copy of it.
const HOOKS_MAX: usize = 100;

/// Bytes of a body from which on it is not put whole.
const WHOLE_BYTES_MAX: usize = 64 << 10;

/// Properties of a put besides the fields that RQ shows.
#[derive(Default)]
pub(crate) struct PutAs {
    /// Wins over `param1`.
    pub(crate) body: Option<Body>,
    pub(crate) prepared: bool,
    pub(crate) attrs: Vec<Attr>,
    /// A repeat with the same token within a day puts nothing.
    pub(crate) token: Option<Box<[u8]>>,
}

/// How a walk through a list ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    /// All were shown.
    Whole,
    /// The caller has seen enough.
    Stopped,
    /// The queue is gone: the rest was not shown.
    BrokeOff,
}

/// A message, found by its short id.
pub(crate) struct MessageMatch {
    pub(crate) message: Message,
    pub(crate) state: &'static str,
    pub(crate) text: String,
}

impl Rq {
    /// The address of a queue: what a message's `dest` is if it says nothing.
    pub fn address(&self, queue: &str) -> String {
        format!("{}q/{queue}", self.options.host)
    }

    /// The queue a destination leads to, and the destination to keep if that is
    /// the queue `relay`: a name or an address of this server is a queue here,
    /// any other address is for `relay`.
    pub(crate) fn route(&self, dest: &str) -> (String, Option<String>) {
        let here = dest.strip_prefix(&self.options.host);
        let here = here.and_then(|path| path.strip_prefix("q/"));
        if let Some(name) = here {
            return (name.trim_end_matches('/').to_owned(), None);
        }
        if dest.starts_with("http:") || dest.starts_with("https:") {
            ("relay".to_owned(), Some(dest.to_owned()))
        } else {
            (dest.to_owned(), None)
        }
    }

    /// The id with the address of its queue: `ADDRESS/SHORT_ID`.
    pub(crate) fn full_id(&self, queue: &str, message: &Message) -> String {
        format!("{}/{}", self.address(queue), short_id(message))
    }

    /// Makes a message. Answers its full id; with [`Method::SingleQue`] that of
    /// the first that waits, if one does.
    ///
    /// # Errors
    /// [`Fault::QueueNotFound`], [`Fault::Down`], the engine's error, or a
    /// parameter that cannot be handed to a script.
    pub fn create(&self, queue: &str, new: NewMessage, method: Method) -> Result<String, Fault> {
        self.must_have(queue)?;
        self.must_be_up(queue)?;
        let _one_at_a_time = (method == Method::SingleQue).then(|| locked(&self.single));
        if method == Method::SingleQue {
            let first = [ListState::Ready, ListState::Delayed]
                .into_iter()
                .find_map(|state| self.page(queue, state, 1).pop());
            if let Some(first) = first {
                return Ok(self.full_id(queue, &first));
            }
        }
        let put_as = PutAs {
            prepared: method == Method::Prep,
            token: new.token.as_deref().map(|token| token.as_bytes().into()),
            ..PutAs::default()
        };
        let message = self.put(queue, &new, put_as)?;
        Ok(self.full_id(queue, &message))
    }

    /// Puts a message. Answers it as stored; if it was taken and is gone
    /// already, as far as that is known.
    pub(crate) fn put(
        &self,
        queue: &str,
        new: &NewMessage,
        put_as: PutAs,
    ) -> Result<Message, Fault> {
        let (prepared, mut attrs) = (put_as.prepared, put_as.attrs);
        let name = Name::from(queue);
        let body = match (put_as.body, new.params[0].as_deref().unwrap_or_default()) {
            (Some(body), _) => body,
            (None, text) if text.len() <= WHOLE_BYTES_MAX => Body::new(text.as_bytes()),
            (None, text) => self
                .client_api
                .store(&name, text.len() as u64, &mut text.as_bytes())
                .map_err(|error| Fault::Failed(error.to_string()))?,
        };
        let due = new.due_ms.map(|ms| self.client_api.at_wall(Ms(ms)));
        self.add_attrs(new, due, &mut attrs)?;
        let client = ScopedClient::new(&*self.client_api);
        let outcome = client.ask(Command::Put(Put {
            queue: name,
            body,
            due: due.map_or(When::Default, When::At),
            more: Some(Box::new(PutMore {
                prepared,
                attrs,
                token: put_as.token,
                ..PutMore::default()
            })),
            ..Put::default()
        }));
        let Outcome::Put { id, .. } = outcome else {
            let other = format!("not put: {outcome:?}");
            return Err(done(outcome).err().unwrap_or(Fault::Failed(other)));
        };
        if !prepared {
            self.kick(queue);
        }
        // Somebody was quick: only its id matters to anybody now.
        Ok(
            first(client.ask(Command::Peek(Peek::Id(id)))).unwrap_or_else(|| {
                let at = At {
                    id,
                    ..At::default()
                };
                Message::new(at, self.client_api.now(), Body::default())
            }),
        )
    }

    fn add_attrs(
        &self,
        new: &NewMessage,
        due: Option<Ms>,
        attrs: &mut Vec<Attr>,
    ) -> Result<(), Fault> {
        let mut add = |name: &str, value: &str| {
            attrs.push((name.as_bytes().into(), value.as_bytes().into()));
        };
        let texts = [
            ("dest", &new.dest),
            ("src", &new.src),
            ("orig_msg_id", &new.orig_msg_id),
            ("cloned_from", &new.cloned_from),
            ("param2", &new.params[1]),
            ("param3", &new.params[2]),
            ("param4", &new.params[3]),
        ];
        for (name, value) in texts {
            let Some(value) = value else { continue };
            // These go into the environment of scripts, nowhere else.
            if value.len() > self.options.limits.param_bytes_max {
                return Err(Fault::Failed(format!("{name} is too long")));
            }
            if value.contains('\0') {
                return Err(Fault::Failed(format!("{name} has a NUL")));
            }
            add(name, value);
        }
        if new.count > 0 {
            add("count", &new.count.to_string());
        }
        if let Some(max_count) = new.max_count {
            add("max_count", &max_count.to_string());
        }
        if let Some(due) = due {
            add("due", &due.0.to_string());
        }
        if new.force_remote {
            add("force_remote", "1");
        }
        if new.post_run_webhook.len() > HOOKS_MAX {
            let text = format!("post_run_webhook has more than {HOOKS_MAX} addresses");
            return Err(Fault::Failed(text));
        }
        if !new.post_run_webhook.is_empty() {
            let hooks = Value::from(new.post_run_webhook.clone());
            add("post_run_webhook", &hooks.to_string());
        }
        Ok(())
    }

    /// Finds a message of a queue by its short or full id.
    pub(crate) fn find(&self, queue: &str, id: &str) -> Result<MessageMatch, Fault> {
        let (created, number) =
            parse_short(crate::ids::last_part(id)).ok_or(Fault::MessageNotFound)?;
        let client = ScopedClient::new(&*self.client_api);
        let peek = Command::Peek(Peek::Id(number));
        let (outcome, name) = ask_named(&*self.client_api, client.client_id(), peek);
        let message = first(outcome).ok_or(Fault::MessageNotFound)?;
        if message.created != created || name.as_bytes() != queue.as_bytes() {
            return Err(Fault::MessageNotFound);
        }
        Ok(self.see(queue, message))
    }

    /// The message with RQ's name of its state, and its last status.
    pub(crate) fn see(&self, queue: &str, message: Message) -> MessageMatch {
        let (mut state, mut text) = (state_word(queue, &message), status_text(&message));
        if message.state == State::Reserved
            && let Some(queue) = self.scripted(queue)
        {
            if let Some(run) = queue.running(message.id.0) {
                text = locked(&run.status).clone();
            } else if queue.runs_along(message.id.0) {
                state = "que";
            }
        }
        MessageMatch {
            message,
            state,
            text,
        }
    }

    /// A message as RQ's JSON.
    ///
    /// # Errors
    /// [`Fault::MessageNotFound`].
    pub fn message(&self, queue: &str, id: &str) -> Result<Value, Fault> {
        let found = self.find(queue, id)?;
        Ok(self.json(queue, &found))
    }

    pub(crate) fn json(&self, queue: &str, found: &MessageMatch) -> Value {
        let message = &found.message;
        record::to_json(
            message,
            Around {
                short: &short_id(message),
                full: &self.full_id(queue, message),
                dest: &self.address(queue),
                param1: self.param1(message, self.options.limits.shown_bytes_max),
                state: found.state,
                status: &status_line(found.state, &found.text),
                path: &self.message_dir(queue, message),
            },
        )
    }

    /// The body as text, if it is one and not longer than `bytes_max`.
    pub(crate) fn param1(&self, message: &Message, bytes_max: u64) -> Option<String> {
        let len = message.body.len();
        if len > bytes_max {
            return None;
        }
        let mut bytes = Vec::with_capacity(usize::try_from(len).ok()?);
        let read = BodyBytes::new(&*self.client_api, message.body.clone())
            .take(bytes_max)
            .read_to_end(&mut bytes);
        // A message that just died has no text any more.
        read.ok()?;
        String::from_utf8(bytes).ok()
    }

    /// A message's folder, whether it is there or not.
    pub(crate) fn message_dir(&self, queue: &str, message: &Message) -> PathBuf {
        self.paths.absolute(&self.paths.dir(queue, message))
    }

    /// One of [`STATES`].
    ///
    /// # Errors
    /// [`Fault::MessageNotFound`].
    pub fn state(&self, queue: &str, id: &str) -> Result<&'static str, Fault> {
        Ok(self.find(queue, id)?.state)
    }

    /// The state, and what was last said: `err - bad`.
    ///
    /// # Errors
    /// [`Fault::MessageNotFound`].
    pub fn status(&self, queue: &str, id: &str) -> Result<String, Fault> {
        let found = self.find(queue, id)?;
        Ok(status_line(found.state, &found.text))
    }

    /// Short ids of a queue's messages in a state, newest first, `limit` at
    /// most. A state nobody knows has none.
    ///
    /// # Errors
    /// [`Fault::QueueNotFound`].
    pub fn list(&self, queue: &str, state: &str, limit: usize) -> Result<Vec<String>, Fault> {
        self.must_have(queue)?;
        if let Some(newest) = self.newest_ended(queue, state, limit) {
            return Ok(newest);
        }
        let mut newest: VecDeque<(u64, String)> = VecDeque::new();
        self.each(queue, state, |message| {
            newest.push_back((message.id.0, short_id(&message)));
            if newest.len() > limit {
                newest.pop_front();
            }
            true
        });
        newest.make_contiguous().sort_unstable();
        Ok(newest.into_iter().rev().map(|(_, id)| id).collect())
    }

    /// The newest that ended in a state, if that many are remembered: the
    /// engine lists its oldest first, and there may be millions.
    fn newest_ended(&self, queue: &str, state: &str, limit: usize) -> Option<Vec<String>> {
        const LOOKED_AT_MAX: usize = 100;
        if limit > LOOKED_AT_MAX {
            return None;
        }
        let ended = self.scripted(queue)?.ended(state);
        let still: Vec<String> = ended
            .into_iter()
            .filter(|id| self.state(queue, id).is_ok_and(|at| at == state))
            .take(limit)
            .collect();
        (still.len() == limit && limit > 0).then_some(still)
    }

    /// Shows messages of a state to `see` until it has enough, or too many
    /// were looked at. True if it saw all.
    pub(crate) fn each(
        &self,
        queue: &str,
        state: &str,
        mut see: impl FnMut(Message) -> bool,
    ) -> bool {
        let states: &[ListState] = match state {
            "prep" => &[ListState::Prepared],
            "que" => &[ListState::Ready, ListState::Delayed],
            "run" => &[ListState::Reserved],
            "err" | "errack" => &[ListState::Buried],
            "done" | "relayed" => &[ListState::Archived],
            _ => &[],
        };
        // Lists that hold more than one state of RQ's. What a script runs
        // along with is `que` to a reader and yet listed as `run`.
        let mixed = |listed| matches!(listed, ListState::Archived | ListState::Buried);
        let mut left = SCANNED_MAX;
        for &listed in states {
            let walk = self.walk(queue, listed, &mut |page| {
                left = left.saturating_sub(page.len());
                for message in page {
                    if mixed(listed) && state_word(queue, message) != state {
                        continue;
                    }
                    if !see(message.clone()) {
                        return false;
                    }
                }
                left > 0
            });
            if walk != Walk::Whole {
                return false;
            }
        }
        true
    }

    /// Shows all messages of a state to `see`, in the engine's order, until it says no: pages of
    /// 1 MiB, or one message more.
    pub(crate) fn walk(
        &self,
        queue: &str,
        listed: ListState,
        see: &mut dyn FnMut(&[Message]) -> bool,
    ) -> Walk {
        let mut slices = Slices::of(BulkOp::show(Name::from(queue), listed, PAGE));
        while let Some(bulk_op) = slices.slice() {
            let requested = self.ask(Command::BulkOp(Box::new(bulk_op.clone())));
            let Outcome::BulkDone(slice) = requested else {
                return match slices.bulk_op.after {
                    None => Walk::Whole,
                    Some(_) => Walk::BrokeOff,
                };
            };
            if !slice.messages.is_empty() && !see(&slice.messages) {
                return Walk::Stopped;
            }
            slices.done(&slice);
        }
        Walk::Whole
    }

    /// Messages of a queue whose fields have (or, with `exact`, are) these
    /// texts, as JSON, and whether there may be more: 1,000 at most, of 1 MiB or one message more.
    ///
    /// # Errors
    /// [`Fault::QueueNotFound`].
    pub fn search(
        &self,
        queue: &str,
        query: &[(String, String)],
        exact: bool,
    ) -> Result<(Vec<Value>, bool), Fault> {
        const FOUND_MAX: usize = 1000;
        self.must_have(queue)?;
        let (mut all, mut bytes) = (Vec::new(), 0);
        for state in STATES {
            let whole = self.each(queue, state, |message| {
                let len = message.size();
                let json = self.json(queue, &self.see(queue, message));
                let fits = query.iter().all(|(name, wanted)| {
                    let value = crate::config::text(json.get(name)).unwrap_or_default();
                    if exact {
                        value == *wanted
                    } else {
                        value.contains(wanted.as_str())
                    }
                });
                if fits {
                    all.push(json);
                    bytes += len;
                }
                all.len() < FOUND_MAX && bytes < SEARCH_BYTES
            });
            if !whole {
                return Ok((all, true));
            }
        }
        Ok((all, false))
    }

    /// Puts a prepared message into its queue's order.
    ///
    /// # Errors
    /// [`Fault::MessageNotFound`]; [`Fault::WrongState`] if it is not
    /// prepared; [`Fault::Down`].
    pub fn commit(&self, queue: &str, id: &str) -> Result<(), Fault> {
        let found = self.find(queue, id)?;
        self.must_be_up(queue)?;
        let _one_at_a_time = self.preparing(&found.message);
        if found.state != "prep" {
            return Err(Fault::WrongState("cannot find message".to_owned()));
        }
        done(self.ask(Command::Commit(found.message.id)))?;
        self.kick(queue);
        Ok(())
    }

    pub(crate) fn preparing(&self, message: &Message) -> std::sync::MutexGuard<'_, ()> {
        let at = usize::try_from(message.id.0 % self.preparing.len() as u64);
        locked(&self.preparing[at.expect("below a length")])
    }

    /// Deletes a message that does not run, and its files.
    ///
    /// # Errors
    /// [`Fault::MessageNotFound`]; [`Fault::WrongState`] if it runs.
    pub fn delete(&self, queue: &str, id: &str) -> Result<(), Fault> {
        let found = self.find(queue, id)?;
        self.must_be_up(queue)?;
        let _one_at_a_time = self.preparing(&found.message);
        let outcome = self.ask(Command::Delete {
            id: found.message.id,
            by: By::OwnerOrFree,
        });
        if found.message.state == State::Reserved && matches!(outcome, Outcome::Refused(_)) {
            let why = "cannot delete a running message".to_owned();
            return Err(Fault::WrongState(why));
        }
        done(outcome)?;
        paths::remove_tree(&self.message_dir(queue, &found.message));
        Ok(())
    }

    /// Sends TERM to the script that runs for a message, and KILL if it does
    /// not go. It ends in `err`, unless it says otherwise.
    ///
    /// # Errors
    /// [`Fault::MessageNotFound`]; [`Fault::WrongState`] if no script runs.
    pub fn destroy(&self, queue: &str, id: &str) -> Result<(), Fault> {
        let found = self.find(queue, id)?;
        let run = self
            .scripted(queue)
            .and_then(|queue| queue.running(found.message.id.0))
            .ok_or_else(|| Fault::WrongState("message is not running".to_owned()))?;
        run.ask(|requested| requested.destroy = true);
        Ok(())
    }

    /// Makes a message that waits the first to run.
    ///
    /// # Errors
    /// [`Fault::MessageNotFound`]; [`Fault::WrongState`] if it does not wait.
    pub fn run_now(&self, queue: &str, id: &str) -> Result<(), Fault> {
        let found = self.find(queue, id)?;
        self.must_be_up(queue)?;
        match found.state {
            "que" if found.message.state == State::Ready => {}
            "run" => return Err(Fault::WrongState("msg already running".to_owned())),
            _ => return Err(Fault::WrongState("msg is not in que".to_owned())),
        }
        let waiting = self.page(queue, ListState::Ready, self.options.limits.window);
        let earliest = waiting.iter().map(|message| record::due(message).0).min();
        let due = earliest.map_or(u64::MAX, |ms| ms.saturating_sub(1));
        let due = due.min(self.client_api.now().0);
        let edit = Edit {
            due: Some(When::Now),
            attrs: vec![set("due", &due.to_string())],
            ..Edit::default()
        };
        done(self.ask(Command::Edit(found.message.id, Box::new(edit))))?;
        self.kick(queue);
        Ok(())
    }

    /// Makes a message like this one, with its attachments and a count of 0.
    /// Answers the new one's full id.
    ///
    /// # Errors
    /// [`Fault::MessageNotFound`]; [`Fault::WrongState`] unless it is done,
    /// relayed, in `err` or in `errack`; or it cannot be put.
    pub fn clone_message(&self, queue: &str, id: &str) -> Result<String, Fault> {
        let found = self.find(queue, id)?;
        if !["done", "relayed", "err", "errack"].contains(&found.state) {
            return Err(Fault::WrongState(format!(
                "cannot clone a message in {}",
                found.state
            )));
        }
        self.must_be_up(queue)?;
        let mut new = self.like(queue, &found.message);
        new.dest = attr_text(&found.message, "dest");
        new.cloned_from = Some(short_id(&found.message));
        self.copy(queue, &found.message, queue, &new)
            .map_err(|failure| failure.fault)
    }
}

/// The result of a command without a value.
pub(crate) fn done(outcome: Outcome) -> Result<(), Fault> {
    if let Outcome::Refused(command_error) = outcome {
        return Err(command_error.into());
    }
    if let Outcome::Denied(text) = outcome {
        return Err(Fault::Denied(text.into()));
    }
    Ok(())
}

fn first(outcome: Outcome) -> Option<Message> {
    let Outcome::Messages(messages) = outcome else {
        return None;
    };
    messages.into_iter().next()
}
