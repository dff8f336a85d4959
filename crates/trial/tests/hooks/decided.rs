//! Commands, settles, connections and users that hooks decide about.

use super::*;

use quintet_types::{
    CommandError, Groups, Guard, HOLD_MAX_MS, Holding, MessageVersion, Peek, PutMore,
};

#[test]
fn commands_settles_connections_and_users_are_decided() {
    let mut t = trial(
        "function command(cmd)
           if cmd.name == 'flush' then return false, 'no flush of ' .. cmd.queue end
           if cmd.name == 'drop' then return 'dropped nothing' end
         end
         function settle(s)
           if s.how == 'bury' or s.how == 'cancel' then return false, 'not ' .. s.how end
         end
         function connect(conn) if conn.id == 7 then return false, 'go away' end end
         function auth(user, secret) return user == 'me' and secret == 'x' end
         quintet.on('error', function(text) return text:upper() .. '\\nREALLY' end)",
    );
    let flush = t.submit(
        &client(1),
        Command::Flush {
            queue: "q".into(),
            reserved: false,
        },
    );
    assert_eq!(described(flush), "denied: no flush of q");
    put(&mut t, "q", "x");
    let dropped = t.submit(&client(1), Command::Drop("q".into()));
    assert_eq!(described(dropped), "answer: dropped nothing");
    assert_eq!(reserve(&mut t, "q", 0), "x");
    let settle = |how| Command::Settle {
        id: MessageId(1),
        by: By::Owner,
        how,
    };
    let bury = How::Bury {
        priority: None,
        reason: Box::default(),
    };
    assert_eq!(
        described(t.submit(&client(2), settle(bury))),
        "denied: not bury"
    );
    let cancel = || Cancel {
        reason: Box::default(),
        grace_ms: 0,
    };
    let by_name = ByName {
        queue: None,
        name: b"n".as_slice().into(),
        by: By::Anyone,
        action: NamedAction::Cancel(cancel()),
    };
    for cancels in [
        Command::Cancel(MessageId(1), Box::new(cancel())),
        Command::ByName(Box::new(by_name)),
    ] {
        assert_eq!(
            described(t.submit(&client(2), cancels)),
            "denied: not cancel"
        );
    }
    assert_eq!(described(t.submit(&client(2), settle(How::Finish))), "Done");
    let again = described(t.submit(&client(2), settle(How::Finish)));
    assert_eq!(again, "denied: MESSAGE NOT FOUND REALLY");
    assert_eq!(t.state.connect(&client(7)).as_deref(), Some("go away"));
    assert_eq!(t.state.connect(&client(8)), None);
    assert_eq!(t.state.auth(&client(8), "me", b"x"), Some(true));
    assert_eq!(t.state.auth(&client(8), "me", b"y"), Some(false));
    assert_eq!(log(&t), [""; 0]);
}

/// As the API ends a lease: the hook sees the command, and the client of its conditions.
#[test]
fn a_settle_under_conditions_is_decided_too() {
    let mut t = trial(
        "function settle(s)
           local m = quintet.get(s.id)
           if m and m.body == 'kept' then return false, 'not ' .. s.how end
         end",
    );
    for body in ["kept", "x"] {
        put(&mut t, "q", body);
        assert_eq!(reserve(&mut t, "q", 0), body);
    }
    let mut seen = |id| {
        let peek = Command::Peek(Peek::Id(MessageId(id)));
        match t.submit(&client(2), peek) {
            Decided::Now(Outcome::Messages(messages), _) => MessageVersion::of(&messages[0]),
            other => panic!("{other:?}"),
        }
    };
    let (kept, other) = (seen(1), seen(2));
    let finish = |id, seen| {
        let id = MessageId(id);
        let settle = Command::Settle {
            id,
            by: By::Anyone,
            how: How::Finish,
        };
        let seen = Some(seen);
        Command::Transaction(Box::new(Transaction {
            guards: vec![Guard::Message { id, seen }],
            then: Some(Box::new(settle)),
            ..Transaction::default()
        }))
    };
    let denied = described(t.submit(&client(2), finish(1, kept)));
    assert_eq!(denied, "denied: not finish");
    let changed = described(t.submit(&client(2), finish(2, kept)));
    let conflict = CommandError::Conflict.text();
    assert_eq!(changed, format!("refused: {conflict}"));
    assert_eq!(described(t.submit(&client(2), finish(2, other))), "Done");
    assert_eq!(log(&t), [""; 0]);
}

/// A worker that holds a whole queue ends its lease with that.
#[test]
fn a_settle_that_holds_its_queue_is_decided_too() {
    let mut t = trial("function settle(s) return false, 'not ' .. s.how end");
    put(&mut t, "q", "x");
    assert_eq!(reserve(&mut t, "q", 0), "x");
    let settle = Command::SettleHolding {
        id: MessageId(1),
        by: By::Anyone,
        how: How::Finish,
        hold: Holding::Queue(1000),
    };
    assert_eq!(
        described(t.submit(&client(2), settle)),
        "denied: not finish"
    );
}

#[test]
fn a_settle_sees_why_its_message_is_cancelled() {
    let mut t = trial(
        "function settle(s)
           if s.how == 'finish' then return false, quintet.get(s.id).cancelled or 'wanted' end
         end",
    );
    put(&mut t, "q", "x");
    assert_eq!(reserve(&mut t, "q", 0), "x");
    let finish = || Command::Settle {
        id: MessageId(1),
        by: By::Anyone,
        how: How::Finish,
    };
    assert_eq!(described(t.submit(&client(2), finish())), "denied: wanted");
    let cancel = Cancel {
        reason: b"sold out".as_slice().into(),
        grace_ms: 1000,
    };
    let cancel = Command::Cancel(MessageId(1), Box::new(cancel));
    assert_eq!(described(t.submit(&client(2), cancel)), "Done");
    assert_eq!(
        described(t.submit(&client(2), finish())),
        "denied: sold out"
    );
    assert_eq!(log(&t), [""; 0]);
}

#[test]
fn a_hook_does_not_take_a_message_that_it_has_cancelled() {
    let mut t = trial(
        "quintet.command('NEXT', function(args)
           quintet.cancel(1)
           return quintet.get(1) and 'seen' or quintet.take('q').body
         end)",
    );
    put(&mut t, "q", "cancelled");
    put(&mut t, "q", "second");
    assert_eq!(batches::added(&mut t, "NEXT"), "second");
    assert_eq!(take(&mut t, "q"), "empty");
    assert_eq!(log(&t), [""; 0]);
}

#[test]
fn the_grace_of_a_hooks_cancel_is_a_week_at_most() {
    let mut t = trial(
        "quintet.command('CANCEL', function(args)
           local _, why = pcall(quintet.cancel, 1, 'late', tonumber(args[1]))
           return why and tostring(why):match('grace_ms: [^,]*') or 'asked'
         end)",
    );
    put(&mut t, "q", "held");
    assert_eq!(reserve(&mut t, "q", 0), "held");
    let most = Cancel::GRACE_MAX_MS;
    let longer = batches::added(&mut t, &format!("CANCEL {}", most + 1));
    let why = format!("grace_ms: a whole number from 0 to {most} expected");
    assert_eq!(longer, why);
    assert_eq!(batches::added(&mut t, &format!("CANCEL {most}")), "asked");
    assert_eq!(log(&t), [""; 0]);
}

#[test]
fn a_hook_cancels_a_message_that_waits_and_one_that_a_worker_holds() {
    let mut t = trial(
        "quintet.command('CANCEL', function(args)
           quintet.cancel(tonumber(args[1]), 'sold out', 1000)
           return 'asked'
         end)",
    );
    put(&mut t, "q", "held");
    put(&mut t, "q", "waits");
    assert_eq!(reserve(&mut t, "q", 0), "held");
    // The second cancel of a message has no effect.
    for id in [1, 1, 2] {
        assert_eq!(batches::added(&mut t, &format!("CANCEL {id}")), "asked");
    }
    assert_eq!(take(&mut t, "q"), "empty");
    let peek = Command::Peek(Peek::Id(MessageId(1)));
    let Decided::Now(Outcome::Messages(held), _) = t.submit(&client(2), peek) else {
        panic!("its worker has it");
    };
    let cancelled = held[0].cancelled().expect("it is cancelled");
    assert_eq!(&*cancelled.reason, b"sold out");
    assert_eq!(log(&t), [""; 0]);
}

#[test]
fn a_hook_holds_a_key_and_a_whole_queue() {
    let mut settings = Settings::default();
    settings.defaults.groups = Groups::Fair;
    let mut t = trial_with(
        "quintet.command('KEY', function(args)
           quintet.hold('q', 'k', tonumber(args[1]))
           return 'asked'
         end)
         quintet.command('QUEUE', function()
           quintet.hold('q', nil, 1000)
           return 'asked'
         end)
         function before_put(msg)
           if msg.body == 'wrong' then quintet.hold('absent', nil, 1000) end
         end",
        Limits::default(),
        settings,
    );
    for key in ["k", "other"] {
        let more = PutMore {
            key: Some(Arc::from(key.as_bytes())),
            ..PutMore::default()
        };
        let put = Put {
            more: Some(Box::new(more)),
            ..Put::new("q".into(), Body::new(key.as_bytes()))
        };
        put_as(&mut t, put);
    }
    assert_eq!(batches::added(&mut t, "KEY 1000"), "asked");
    assert_eq!(take(&mut t, "q"), "other");
    assert_eq!(take(&mut t, "q"), "empty");
    t.pass(1001);
    assert_eq!(take(&mut t, "q"), "k");
    put(&mut t, "q", "x");
    assert_eq!(batches::added(&mut t, "QUEUE"), "asked");
    assert_eq!(take(&mut t, "q"), "empty");
    t.pass(1001);
    assert_eq!(take(&mut t, "q"), "x");
    assert_eq!(log(&t), [""; 0]);
    // What the engine refuses refuses the put as well.
    assert_eq!(put(&mut t, "q", "wrong"), "refused: queue not found");
    batches::added(&mut t, &format!("KEY {}", HOLD_MAX_MS + 1));
    let told = log(&t).join("\n");
    let why = format!("quintet.hold: ms: a whole number from 0 to {HOLD_MAX_MS} expected");
    assert!(told.contains(&why), "{told}");
}

/// Nothing else would ever end the wait of the message.
#[test]
fn a_kick_is_no_decision_about_a_message() {
    let mut t = trial("function lease_end(msg) quintet.kick(msg) end");
    put(&mut t, "q", "x");
    assert_eq!(reserve(&mut t, "q", 100), "x");
    t.pass(100);
    assert_eq!(take(&mut t, "q"), "x");
    assert_eq!(log(&t), [""; 0]);
}
