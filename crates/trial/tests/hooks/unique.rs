//! Deduplication of puts by hooks.

use super::{log, put, take, trial};

#[test]
fn dedupe_of_a_put_is_a_text_or_a_table() {
    let mut t = trial(
        "function before_put(msg)
           if msg.body == 'text' then msg.dedupe = 'x' end
           if msg.body == 'table' then
             msg.dedupe = { id = 'y', window_ms = 0, scope = 'waiting', on_repeat = 'refuse' }
           end
           if msg.body == 'newer' then
             msg.dedupe = { id = 'y', window_ms = 0, scope = 'waiting', on_repeat = 'replace' }
           end
           if msg.body == 'scope' then msg.dedupe = { id = 'z', scope = 'ever' } end
           if msg.body == 'repeat' then msg.dedupe = { id = 'z', on_repeat = 'maybe' } end
           if msg.body == 'field' then msg.dedupe = { id = 'z', until_ms = 4 } end
           if msg.body == 'none' then msg.dedupe = {} end
         end",
    );
    let first = put(&mut t, "q", "text");
    assert_eq!(put(&mut t, "q", "text"), first);
    let second = put(&mut t, "q", "table");
    assert_ne!(second, first);
    assert_eq!(put(&mut t, "q", "table"), "refused: duplicate message");
    assert_ne!(put(&mut t, "q", "newer"), second);
    assert_eq!(take(&mut t, "q"), "text");
    assert_eq!(take(&mut t, "q"), "newer");
    assert_eq!(take(&mut t, "q"), "empty");
    // It waits no more, so it is no repeat; and what is wrong is named, and puts nothing.
    assert_ne!(put(&mut t, "q", "table"), second);
    assert_eq!(take(&mut t, "q"), "table");
    for (body, why) in [
        (
            "scope",
            "dedupe.scope: \"time\", \"waiting\", \"started\" or \"done\" expected",
        ),
        (
            "repeat",
            "dedupe.on_repeat: \"refuse\", \"first\" or \"replace\" expected",
        ),
        (
            "field",
            "dedupe: a table of id, window_ms, scope, on_repeat expected",
        ),
        ("none", "dedupe: a table with an id expected"),
    ] {
        put(&mut t, "wrong", body);
        let logged = log(&t).join("\n");
        assert!(logged.contains(why), "{body}: {logged}");
    }
}
