//! Batches that hooks make and look at, and what became of tracked messages.

use quintet_engine::{Engine, Fact};
use quintet_hooks::HookReply;
use quintet_trial::{Trial, client};
use quintet_types::{SegmentRef, Settings};

use super::{log, put, take, trial};

/// The reply of a command that hooks have added.
pub(super) fn added(t: &mut Trial, line: &str) -> String {
    match t.state.added(&client(1), line.as_bytes()) {
        Some(HookReply::Text(text)) => String::from_utf8(text).expect("text"),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_hook_makes_a_batch_fills_and_commits_it_in_one_step_with_its_command() {
    let mut t = trial(
        "function before_put(msg)
           if msg.queue ~= 'order' then return end
           local b = quintet.batch{
             complete = {queue = 'ran', body = 'all ran', name = 'r', attrs = {k = 'v'}},
             success = {queue = 'packed', body = msg.body, priority = 3, ttr_ms = 5000},
             description = 'an order',
             cancelled = 'finished',
           }
           b:commit()
           assert(b:show() == nil)
           for part in msg.body:gmatch('%a+') do
             quintet.put{queue = 'parts', body = part, batch = b}
           end
           quintet.table('orders'):set('last', b.id)
           msg.batch = b.id
         end
         function after_take(msg)
           if msg.queue == 'ran' then
             quintet.log.info(('%s %s %s %s'):format(
               msg.name, msg.attrs.k, msg.attrs.batch_event,
               msg.attrs.batch == quintet.table('orders'):get('last')))
           end
         end
         quintet.command('LAST', function()
           local b = quintet.batch(quintet.table('orders'):get('last')):show()
           return ('%s %s %s %d %d %d %s %s'):format(b.description, b.cancelled, b.open,
             b.total, b.pending, b.failed, b.complete, b.success)
         end)",
    );
    let first = put(&mut t, "order", "wheel bell");
    assert!(first.parse::<u64>().is_ok(), "{first}: {:?}", log(&t));
    assert_eq!(added(&mut t, "LAST"), "an order finished false 3 3 0 no no");
    assert_eq!(take(&mut t, "parts"), "wheel");
    assert_eq!(take(&mut t, "order"), "wheel bell");
    assert_eq!(take(&mut t, "ran"), "empty");
    assert_eq!(take(&mut t, "parts"), "bell");
    assert_eq!(take(&mut t, "ran"), "all ran");
    assert_eq!(log(&t), ["r v complete true"]);
    assert_eq!(take(&mut t, "packed"), "wheel bell");
    // Nothing of it needs the hooks again.
    let mut engine = Engine::new(0, 1, Settings::default());
    for fact in t.world.facts() {
        engine.replay(fact, SegmentRef(0));
    }
    assert_eq!(engine.image(), t.world.image());
}

#[test]
fn a_hook_that_fails_has_made_no_batch_and_its_error_is_named() {
    let mut t = trial(
        "function before_put(msg)
           local done = {queue = 'done', body = 'x'}
           local b
           if msg.body == 'late' then b = quintet.batch{success = done} error('too late') end
           if msg.body == 'none' then b = quintet.batch{description = 'x'} end
           if msg.body == 'field' then b = quintet.batch{success = done, other = 1} end
           if msg.body == 'word' then b = quintet.batch{success = done, cancelled = 'done'} end
           if msg.body == 'text' then b = quintet.batch{success = 'done'} end
           if msg.body == 'delay' then
             b = quintet.batch{success = {queue = 'done', delay_ms = 5}}
           end
           if msg.body == 'queue' then b = quintet.batch{success = {body = 'x'}} end
           if msg.body == 'id' then quintet.batch('b-7'):show() end
           if msg.body == 'parent' then
             b = quintet.batch{success = done, parent = 'b-00000000000000ff'}
           end
           if msg.body == 'many' then
             for _ = 1, 2000 do b = quintet.batch{success = done} end
           end
           if msg.body == 'gone' then
             assert(quintet.batch('b-00000000000000ff'):show() == nil)
             quintet.batch('b-00000000000000ff'):commit()
           end
           if msg.body == 'good' then b = quintet.batch{success = done} end
           if b then quintet.table('made'):set(msg.body, b.id) end
         end",
    );
    for (body, why) in [
        ("late", "too late"),
        (
            "none",
            "quintet.batch: complete or success expected, a message each",
        ),
        (
            "field",
            "quintet.batch: a table of complete, success, description, parent, cancelled expected",
        ),
        ("word", "cancelled: \"failed\" or \"finished\" expected"),
        ("text", "success: a message expected, got string"),
        (
            "delay",
            "success: a table of queue, body, priority, ttr_ms, name, attrs expected",
        ),
        ("queue", "success: queue: a name expected, got nil"),
        (
            "id",
            "batch:show: batch: an id of a batch expected, b- and 16 hex digits",
        ),
        ("many", "one call can make at most 1000 requests"),
    ] {
        put(&mut t, "q", body);
        let logged = log(&t).join("\n");
        assert!(logged.contains(why), "{body}: {logged}");
        // The put goes on as if there were no hook.
        assert_eq!(take(&mut t, "q"), body);
    }
    // What the engine refuses refuses the put as well.
    for body in ["gone", "parent"] {
        let refused = put(&mut t, "q", body);
        assert_eq!(refused, "refused: no such batch", "{:?}", log(&t));
        assert_eq!(take(&mut t, "q"), "empty");
    }
    let batches = |t: &Trial| {
        let facts = t.world.facts();
        let is_made = |fact: &&Fact| matches!(fact, Fact::BatchMade(_));
        facts.iter().filter(is_made).count()
    };
    assert_eq!(batches(&t), 0);
    put(&mut t, "q", "good");
    assert_eq!((batches(&t), log(&t)), (1, vec![]));
}

#[test]
fn hooks_read_outcomes_of_tracked_messages() {
    let mut t = trial(
        "function before_put(msg)
           msg.tracked, msg.name = msg.body ~= 'plain', msg.body
           if msg.body == 'wrong' then msg.tracked = 'yes' end
           if msg.body == 'ask' then msg.reply_to = 'answers' end
           if msg.body == 'ask no more' then msg.reply_to = nil end
         end
         function after_take(msg) assert(msg.tracked == (msg.body ~= 'plain')) end
         quintet.command('TRACK', function(args)
           local known = quintet.track('q', args[1])
           if not known then return 'unknown' end
           return ('%s %s %s %s'):format(known.name, known.queue, known.state, known.progress)
         end)
         quintet.command('RESULT', function(args)
           local r = quintet.result(tonumber(args[1]))
           return r and ('%s %s'):format(r.state, r.result or r.error) or 'unknown'
         end)
         quintet.command('BAD', function() quintet.track('q', '') end)",
    );
    let track = |t: &mut Trial, name: &str| added(t, &format!("TRACK {name}"));
    put(&mut t, "q", "one");
    put(&mut t, "q", "plain");
    assert_eq!(track(&mut t, "one"), "one q waiting nil");
    assert_eq!(added(&mut t, "RESULT 1"), "pending nil");
    assert_eq!(track(&mut t, "plain"), "unknown");
    assert_eq!(take(&mut t, "q"), "one");
    assert_eq!(track(&mut t, "one"), "one q done nil");
    assert_eq!(added(&mut t, "RESULT 1"), "done nil");
    assert_eq!(added(&mut t, "RESULT 7"), "unknown");
    assert_eq!(take(&mut t, "q"), "plain");
    assert_eq!(log(&t), [""; 0]);
    for body in ["ask", "ask no more"] {
        put(&mut t, "q", body);
        assert_eq!(take(&mut t, "q"), body);
    }
    assert_eq!(
        take(&mut t, "answers"),
        "",
        "the reply, whose result is empty"
    );
    assert_eq!(take(&mut t, "answers"), "empty");
    put(&mut t, "q", "wrong");
    let logged = log(&t).join("\n");
    let why = "tracked: true or false expected, got string";
    assert!(logged.contains(why), "{logged}");
    added(&mut t, "BAD");
    let logged = log(&t).join("\n");
    assert!(
        logged.contains("quintet.track: name: at least 1 byte"),
        "{logged}"
    );
}

#[test]
fn a_put_of_a_hook_waits_for_messages_of_any_shard() {
    let mut t = trial(
        "function before_put(msg)
           if msg.body == 'none' then msg.after = {0} end
           msg.after = {(2 << 55) + 7}
           quintet.log.info(('%d'):format(msg.after[1]))
           msg.after = nil
         end",
    );
    put(&mut t, "q", "none");
    let logged = log(&t).join("\n");
    assert!(
        logged.ends_with("after: an id of a message (1 or more) expected, got 0"),
        "{logged}"
    );
    put(&mut t, "q", "other");
    assert_eq!(log(&t), ["72057594037927943"]);
}

#[test]
fn a_reply_queue_with_a_long_name_gets_its_limit() {
    let mut t = trial("function before_put(msg) msg.reply_to = ('q'):rep(256) end");
    assert_eq!(put(&mut t, "a", "x"), "1");
    let says = "hook before_put: hooks.lua:1: msg.reply_to: at most 255 bytes expected";
    assert_eq!(log(&t), [says]);
}
