//! The text of the page after a redirect. RQ keeps it in a session cookie, which `curl -L` does not
//! send back; here the address carries a number for it, and the text stays on the server so that no
//! link can put words into its mouth.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::sync::Mutex;

use quintet_types::locked;

/// Notices that wait to be shown; the oldest go when there are more.
const NOTICES_MAX: usize = 256;

/// Notices that wait to be shown once.
#[derive(Default)]
pub(crate) struct Flash {
    notices: Mutex<Notices>,
}

#[derive(Default)]
struct Notices {
    count: u64,
    waiting: VecDeque<(String, String)>,
}

impl Flash {
    /// Keeps a notice; `to` with its number added.
    pub(crate) fn add(&self, to: &str, text: String) -> String {
        let mut notices = locked(&self.notices);
        notices.count += 1;
        // The standard library's hash keys are random.
        let number = std::hash::RandomState::new().hash_one(notices.count);
        let number = format!("{number:016x}");
        if notices.waiting.len() >= NOTICES_MAX {
            notices.waiting.pop_front();
        }
        notices.waiting.push_back((number.clone(), text));
        let mark = if to.contains('?') { '&' } else { '?' };
        format!("{to}{mark}notice={number}")
    }

    /// The notice of that number, once.
    pub(crate) fn take(&self, number: &str) -> Option<String> {
        let mut notices = locked(&self.notices);
        let at = notices.waiting.iter().position(|(n, _)| n == number)?;
        notices.waiting.remove(at).map(|(_, text)| text)
    }
}

#[cfg(test)]
mod tests {
    use super::{Flash, NOTICES_MAX};

    #[test]
    fn a_notice_is_shown_once_and_their_number_is_bounded() {
        let flash = Flash::default();
        let to = flash.add("/q/a?b=c", "made".to_owned());
        let number = to.strip_prefix("/q/a?b=c&notice=").expect("a number");
        assert_eq!(flash.take(number).as_deref(), Some("made"));
        assert_eq!(flash.take(number), None);
        let first = flash.add("/", "first".to_owned());
        for n in 0..NOTICES_MAX {
            flash.add("/", n.to_string());
        }
        let first = first.strip_prefix("/?notice=").expect("a number");
        assert_eq!(flash.take(first), None);
    }
}
