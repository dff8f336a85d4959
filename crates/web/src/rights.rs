//! Rights that an address needs, and which requests the audit writes down.

use std::borrow::Cow;

use hyper::Method;
use quintet_http::{Problem, Requester, gate::not_permitted};
use quintet_types::Verb;

/// The rights that a request needs.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Needs<'a> {
    /// Nothing, or its handler knows.
    Nothing,
    Of(&'static [Verb], Cow<'a, str>),
    Metrics,
    Server,
}

/// A part of an address without its escapes.
fn decoded(part: &str) -> Cow<'_, str> {
    percent_encoding::percent_decode_str(part).decode_utf8_lossy()
}

fn needs<'a>(method: &Method, path: &'a str) -> Needs<'a> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let of = |verbs: &'static [Verb], queue: &'a str| Needs::Of(verbs, decoded(queue));
    let reads = *method == Method::GET || *method == Method::HEAD;
    match parts[..] {
        // The shards look at each command.
        ["api", "v1", ..] => Needs::Nothing,
        [place, ..] if quintet_console::PLACES.contains(&place) => Needs::Nothing,
        // Lists show what may be seen; a search and an act say of what queue in
        // their form.
        ["" | "q" | "q.txt" | "q.json" | "search"] | ["assets", _] if reads => Needs::Nothing,
        ["metrics"] if reads => Needs::Metrics,
        ["q", last] if reads => {
            // As its handler reads it: a dot may be escaped too.
            let last = decoded(last);
            let (queue, form) = last.split_once('.').unwrap_or((&last, ""));
            let verbs: &[Verb] = match form {
                "txt" => &[Verb::Stats],
                _ => &[Verb::Peek],
            };
            Needs::Of(verbs, queue.to_owned().into())
        }
        ["q", queue, "config" | "config.json"] if reads => of(&[Verb::Stats], queue),
        ["q", queue, "new_message"] => of(&[Verb::Put], queue),
        ["q", queue, ..] if reads => of(&[Verb::Peek], queue),
        ["q", queue, "adminoper" | "restart" | "ack_errs"] => of(&[Verb::Configure], queue),
        ["q", _, _] => Needs::Nothing,
        ["q", queue, _, "clone"] => of(&[Verb::Peek, Verb::Put], queue),
        ["q", queue, _, "run_now"] => of(&[Verb::Kick], queue),
        ["q", queue, _, "attach", _] => of(&[Verb::Put], queue),
        _ => Needs::Server,
    }
}

/// Refuses a request that its requester may not make. Handlers check the rights that depend on
/// more than the address.
///
/// # Errors
/// 403.
pub(crate) fn authorize(requester: &Requester, method: &Method, path: &str) -> Result<(), Problem> {
    let may = match needs(method, path) {
        Needs::Nothing => true,
        Needs::Server => requester.may_server(),
        Needs::Metrics => requester.may_read_metrics(),
        Needs::Of(verbs, queue) => verbs.iter().all(|verb| requester.may(*verb, &queue)),
    };
    match may {
        true => Ok(()),
        false => Err(not_permitted()),
    }
}

/// True for acts of an operator at addresses of RQ, which the audit writes down. The API and the
/// console say so with their responses ([`quintet_api::Administers`]).
pub(crate) fn is_administrative(method: &Method, path: &str) -> bool {
    let reads = *method == Method::GET || *method == Method::HEAD;
    !reads
        && match needs(method, path) {
            Needs::Server => true,
            Needs::Of(verbs, _) => verbs
                .iter()
                .any(|verb| matches!(verb, Verb::Configure | Verb::Kick)),
            // Its handler says which of these are.
            Needs::Nothing => matches!(path.split('/').collect::<Vec<_>>()[..], ["", "q", _, _]),
            Needs::Metrics => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_right() {
        let of = |verbs: &'static [Verb], queue| Needs::Of(verbs, Cow::Borrowed(queue));
        let peek = |queue| of(&[Verb::Peek], queue);
        for (method, path, expected) in [
            ("GET", "/", Needs::Nothing),
            ("GET", "/q.json", Needs::Nothing),
            ("GET", "/assets/rq.css", Needs::Nothing),
            ("GET", "/q", Needs::Nothing),
            ("POST", "/queues/a/do/purge", Needs::Nothing),
            ("POST", "/put", Needs::Nothing),
            ("GET", "/metrics", Needs::Metrics),
            ("POST", "/metrics", Needs::Server),
            ("GET", "/q/work", peek("work")),
            ("GET", "/q/work.json", peek("work")),
            ("GET", "/q/work%2Ejson", peek("work")),
            ("GET", "/q/work%2elog", peek("work")),
            ("GET", "/q/wor%6B%2Etxt", of(&[Verb::Stats], "work")),
            ("HEAD", "/q/work.txt", of(&[Verb::Stats], "work")),
            ("GET", "/q/work/7/log/stdout", peek("work")),
            ("GET", "/q/work/done.json", peek("work")),
            ("POST", "/q/work/new_message", of(&[Verb::Put], "work")),
            ("POST", "/q/work/adminoper", of(&[Verb::Configure], "work")),
            ("POST", "/q/work/7/run_now", of(&[Verb::Kick], "work")),
            ("POST", "/q/work/7/attach/a", of(&[Verb::Put], "work")),
            ("POST", "/new_queue", Needs::Server),
            ("POST", "/delete_queue", Needs::Server),
            ("GET", "/new_queue", Needs::Server),
            // What nobody has thought of.
            ("POST", "/q/work/7/explode", Needs::Server),
            ("DELETE", "/q", Needs::Server),
        ] {
            let method = method.parse().expect("a method");
            assert_eq!(needs(&method, path), expected, "{method} {path}");
        }
    }
}
