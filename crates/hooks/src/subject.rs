//! The message an event is about, as its function sees it.

use std::sync::{Arc, Mutex};

use mlua::{Error, Lua, MetaMethod, Result, String as LuaString, UserData, UserDataMethods, Value};
use quintet_types::{Body, Message, MessageId, Ms, Name, Put, locked};

use crate::fields;

/// The present meaning of the one `msg` of a state.
#[derive(Default)]
pub(crate) enum Subject {
    /// No event runs: a function has kept its `msg` for later.
    #[default]
    Gone,
    /// To be put, may be changed; or was put, under an id.
    Put(Put, Option<MessageId>),
    /// Stored. Only the body that its consumer gets can be changed.
    Stored(Box<Stored>),
}

/// A stored message that an event is about.
pub(crate) struct Stored {
    pub(crate) message: Message,
    pub(crate) queue: Name,
    pub(crate) now: Ms,
    /// Its body can be changed.
    pub(crate) open: bool,
}

/// The userdata. There is one for each state, so that a call makes none.
pub(crate) struct Msg(pub(crate) Arc<Mutex<Subject>>);

const GONE: &str = "a message is valid only while the function that got it runs";

impl Msg {
    fn get(&self, lua: &Lua, field: &LuaString) -> Result<Value> {
        let name = field.as_bytes();
        let found = match &*locked(&self.0) {
            Subject::Gone => return Err(Error::runtime(GONE)),
            Subject::Put(_, Some(id)) if *name == *b"id" => {
                Some(Value::Integer(i64::try_from(id.0).unwrap_or(i64::MAX)))
            }
            Subject::Put(put, _) => fields::of_put(lua, put, &name)?,
            Subject::Stored(stored) => {
                fields::of_message(lua, &stored.message, &stored.queue, stored.now, &name)?
            }
        };
        found.ok_or_else(|| {
            let text = match name.as_ref() {
                b"rank" => "rank is called priority now".to_owned(),
                b"held_back" => "held_back is called not_selectable now".to_owned(),
                _ => format!("a message has no field {:?}", field.to_string_lossy()),
            };
            Error::runtime(text)
        })
    }

    fn set(&self, field: &LuaString, value: &Value) -> Result<()> {
        let name = field.to_string_lossy();
        match &mut *locked(&self.0) {
            Subject::Put(put, None) => {
                fields::set(put, &name, value).map_err(|text| Error::runtime(of_field(&text)))
            }
            Subject::Stored(stored) if stored.open && name == "body" => {
                let mut put = Put::default();
                fields::set(&mut put, "body", value)
                    .map_err(|text| Error::runtime(of_field(&text)))?;
                stored.message.body = put.body;
                Ok(())
            }
            Subject::Gone => Err(Error::runtime(GONE)),
            Subject::Put(_, Some(_)) | Subject::Stored(_) => Err(Error::runtime(format!(
                "msg.{name} cannot be set: the message is stored"
            ))),
        }
    }
}

impl UserData for Msg {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_method(MetaMethod::Index, |lua, this, field: LuaString| {
            this.get(lua, &field)
        });
        methods.add_meta_method(
            MetaMethod::NewIndex,
            |_, this, (field, value): (LuaString, Value)| this.set(&field, &value),
        );
        methods.add_meta_method(MetaMethod::ToString, |_, this, ()| {
            Ok(match &*locked(&this.0) {
                Subject::Gone => "message (gone)".to_owned(),
                Subject::Put(put, None) => format!("message for {}", put.queue),
                Subject::Put(put, Some(id)) => format!("message {} in {}", id.0, put.queue),
                Subject::Stored(stored) => {
                    format!("message {} in {}", stored.message.id.0, stored.queue)
                }
            })
        });
    }
}

/// The body an event left a stored message with.
pub(crate) fn body_of(subject: Subject) -> Option<Body> {
    match subject {
        Subject::Stored(stored) => Some(stored.message.body),
        Subject::Gone | Subject::Put(..) => None,
    }
}

/// The error for a field of `msg` that a hook sets; one that names no field stays as it is.
fn of_field(text: &str) -> String {
    match text.starts_with("a message ") {
        true => text.to_owned(),
        false => format!("msg.{text}"),
    }
}
