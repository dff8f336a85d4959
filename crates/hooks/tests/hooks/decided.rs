//! Commands, settles, connections and users that hooks decide about.

use super::*;

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
    assert_eq!(said(flush), "denied: no flush of q");
    put(&mut t, "q", "x");
    let dropped = t.submit(&client(1), Command::Drop("q".into()));
    assert_eq!(said(dropped), "answer: dropped nothing");
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
    assert_eq!(said(t.submit(&client(2), settle(bury))), "denied: not bury");
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
        assert_eq!(said(t.submit(&client(2), cancels)), "denied: not cancel");
    }
    assert_eq!(said(t.submit(&client(2), settle(How::Finish))), "Done");
    let again = said(t.submit(&client(2), settle(How::Finish)));
    assert_eq!(again, "denied: MESSAGE NOT FOUND REALLY");
    assert_eq!(t.state.connect(&client(7)).as_deref(), Some("go away"));
    assert_eq!(t.state.connect(&client(8)), None);
    assert_eq!(t.state.auth(&client(8), "me", b"x"), Some(true));
    assert_eq!(t.state.auth(&client(8), "me", b"y"), Some(false));
    assert_eq!(log(&t), [""; 0]);
}
