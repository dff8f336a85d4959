//! The operation that an address asks for.

use std::borrow::Cow;

use hyper::Method;
use quintet_types::Operation;

/// A part of an address without its escapes.
fn decoded(part: &str) -> Cow<'_, str> {
    percent_encoding::percent_decode_str(part).decode_utf8_lossy()
}

/// The operation that a request asks for, and its queue, if it is on one. The API and the console
/// say the operation with their responses, and the shards ask for its right.
pub(crate) fn operation<'a>(method: &Method, path: &'a str) -> (Operation, Cow<'a, str>) {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let on = |operation, queue: &'a str| (operation, decoded(queue));
    let reads = *method == Method::GET || *method == Method::HEAD;
    match parts[..] {
        ["api", "v1", ..] => on(Operation::Work, ""),
        [place, ..] if quintet_console::PLACES.contains(&place) => on(Operation::Work, ""),
        // Lists show what may be seen; a search and an act say of what queue in
        // their form.
        ["" | "q" | "q.txt" | "q.json" | "search"] | ["assets", _] if reads => {
            on(Operation::Work, "")
        }
        ["metrics"] if reads => on(Operation::Metrics, ""),
        ["q", last] if reads => {
            // As its handler reads it: a dot may be escaped too.
            let last = decoded(last);
            let (queue, form) = last.split_once('.').unwrap_or((&last, ""));
            let operation = match form {
                "txt" => Operation::Stats,
                _ => Operation::Peek,
            };
            (operation, queue.to_owned().into())
        }
        ["q", queue, "config" | "config.json"] if reads => on(Operation::Stats, queue),
        ["q", queue, "new_message"] => on(Operation::Put, queue),
        ["q", queue, ..] if reads => on(Operation::Peek, queue),
        ["q", queue, "adminoper" | "restart" | "ack_errs"] => on(Operation::Configure, queue),
        // Its handler says which.
        ["q", _, _] if *method == Method::POST => on(Operation::Work, ""),
        ["q", queue, _, "clone"] => on(Operation::Clone, queue),
        ["q", queue, _, "run_now"] => on(Operation::RunNow, queue),
        ["q", queue, _, "attach", _] => on(Operation::Put, queue),
        _ if reads => on(Operation::Look, ""),
        ["new_queue" | "new_queue_link"] => on(Operation::NewQueue, ""),
        ["delete_queue"] => on(Operation::DeleteQueue, ""),
        _ => on(Operation::Unknown, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_right() {
        let work = (Operation::Work, "");
        let peek = |queue| (Operation::Peek, queue);
        for (method, path, expected) in [
            ("GET", "/", work),
            ("GET", "/q.json", work),
            ("GET", "/assets/rq.css", work),
            ("GET", "/q", work),
            ("POST", "/queues/a/do/purge", work),
            ("POST", "/put", work),
            ("GET", "/metrics", (Operation::Metrics, "")),
            ("POST", "/metrics", (Operation::Unknown, "")),
            ("GET", "/q/work", peek("work")),
            ("GET", "/q/work.json", peek("work")),
            ("GET", "/q/work%2Ejson", peek("work")),
            ("GET", "/q/work%2elog", peek("work")),
            ("GET", "/q/wor%6B%2Etxt", (Operation::Stats, "work")),
            ("HEAD", "/q/work.txt", (Operation::Stats, "work")),
            ("GET", "/q/work/7/log/stdout", peek("work")),
            ("GET", "/q/work/done.json", peek("work")),
            ("POST", "/q/work/new_message", (Operation::Put, "work")),
            ("POST", "/q/work/adminoper", (Operation::Configure, "work")),
            ("POST", "/q/work/7/run_now", (Operation::RunNow, "work")),
            ("POST", "/q/work/7/attach/a", (Operation::Put, "work")),
            ("POST", "/new_queue", (Operation::NewQueue, "")),
            ("POST", "/delete_queue", (Operation::DeleteQueue, "")),
            ("GET", "/new_queue", (Operation::Look, "")),
            // What nobody has thought of.
            ("POST", "/q/work/7/explode", (Operation::Unknown, "")),
            ("DELETE", "/q", (Operation::Unknown, "")),
            ("DELETE", "/q/work/7", (Operation::Unknown, "")),
        ] {
            let method = method.parse().expect("a method");
            let (operation, queue) = operation(&method, path);
            assert_eq!((operation, &*queue), expected, "{method} {path}");
        }
    }
}
