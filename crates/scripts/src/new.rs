//! A message somebody wants made.

use serde_json::Value;

use crate::config::text;
use crate::fault::Fault;

/// The fields of a new message. What is `None` is not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewMessage {
    /// Destination in its maker's words; by default the address of its queue.
    pub dest: Option<String>,
    /// The maker, in its own words.
    pub src: Option<String>,
    /// The first id it had, here or elsewhere; by default its own.
    pub orig_msg_id: Option<String>,
    /// How often it was sent again.
    pub count: u32,
    /// How often it may be; by default 15.
    pub max_count: Option<u32>,
    /// Parameters 1 to 4. The first is the message's body.
    pub params: [Option<String>; 4],
    /// Not run before, ms since the epoch by the wall clock; by default now. It
    /// is kept in engine time, so that setting the clock later does not move it.
    pub due_ms: Option<u64>,
    /// Addresses told when it is over.
    pub post_run_webhook: Vec<String>,
    /// Do not take the short way to a queue of this server.
    pub force_remote: bool,
    /// The short id of the message it is a clone of.
    pub cloned_from: Option<String>,
    /// A repeat with the same token, within a day, makes nothing and is
    /// answered with the first one's id.
    pub token: Option<String>,
}

quintet_types::named! {
    /// Handling of a new message, by RQ's word for it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub enum Method, word {
        /// It is put into the queue's order.
        #[default]
        Commit = "commit",
        /// It is prepared: attachments may come, until it is committed.
        Prep = "prep",
        /// It is put only if nothing waits in the queue; else the first that waits
        /// is answered.
        SingleQue = "single_que",
    }
}

impl Method {
    /// By RQ's word for it.
    pub fn parse(word: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|method| method.word() == word)
    }
}

impl NewMessage {
    /// From RQ's JSON. Numbers may be written as strings, and the other way
    /// round; fields nobody knows are ignored, as RQ does.
    ///
    /// # Errors
    /// [`Fault::Failed`] if it is no object, or a field cannot be understood.
    pub fn from_json(value: &Value) -> Result<Self, Fault> {
        let all = value
            .as_object()
            .ok_or_else(|| Fault::Failed("message is not an object".to_owned()))?;
        let field = |name: &str| text(all.get(name));
        let number = |name: &str| -> Result<Option<u32>, Fault> {
            let Some(text) = field(name).filter(|text| !text.is_empty()) else {
                return Ok(None);
            };
            let number = text.parse().map(Some);
            number.map_err(|_| Fault::Failed(format!("{name} is not a number: {text}")))
        };
        let due = field("due").filter(|text| !text.is_empty());
        let due_ms = due.as_deref().map(due_ms).transpose()?;
        let hooks = all.get("post_run_webhook").and_then(Value::as_array);
        let hooks = hooks.into_iter().flatten();
        Ok(Self {
            dest: field("dest"),
            src: field("src"),
            orig_msg_id: field("orig_msg_id").filter(|id| !id.is_empty()),
            count: number("count")?.unwrap_or(0),
            max_count: number("max_count")?,
            params: ["param1", "param2", "param3", "param4"].map(field),
            due_ms,
            post_run_webhook: hooks.filter_map(|hook| text(Some(hook))).collect(),
            force_remote: field("force_remote")
                .is_some_and(|on| !["", "0", "false"].contains(&on.as_str())),
            cloned_from: None,
            token: field("relay_token").filter(|token| !token.is_empty()),
        })
    }
}

/// Seconds since the epoch, with or without a fraction, in ms. What is before
/// the epoch counts as the epoch.
fn due_ms(text: &str) -> Result<u64, Fault> {
    let bad = || Fault::Failed(format!("due is not a time: {text}"));
    let seconds: f64 = text.parse().map_err(|_| bad())?;
    // A million years are enough for anybody, and keep the sum exact.
    if !seconds.is_finite() || seconds > 3.2e13 {
        return Err(bad());
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 2^53")]
    let due_ms = (seconds.max(0.0) * 1000.0) as u64;
    Ok(due_ms)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn forms_of_fields() {
        let new = NewMessage::from_json(&json!({
            "dest": "test", "count": "2", "max_count": 3, "due": "1.5", "param1": 7,
            "post_run_webhook": ["http://a/"], "force_remote": true, "unknown": [],
        }))
        .expect("good");
        assert_eq!((new.count, new.max_count), (2, Some(3)));
        assert_eq!(new.due_ms, Some(1500));
        assert_eq!(new.params[0].as_deref(), Some("7"));
        assert_eq!(new.post_run_webhook, ["http://a/"]);
        assert!(new.force_remote);
    }

    #[test]
    fn invalid_text_is_refused() {
        for bad in [
            json!("x"),
            json!({"count": "many"}),
            json!({"count": -1}),
            json!({"due": "soon"}),
            json!({"due": "inf"}),
        ] {
            assert!(NewMessage::from_json(&bad).is_err(), "{bad}");
        }
    }
}
