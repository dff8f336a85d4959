//! Lists come in pages of about 1 MiB, whatever they consist of.

use quintet_types::*;

use crate::world::{World, prioritized};

/// Messages of a page, of what shows all that are buried; and where it goes on.
fn page(w: &mut World, after: Option<Cursor>) -> (Vec<Message>, Option<Cursor>) {
    let bulk_op = BulkOp {
        queue: "q".into(),
        state: ListState::Buried,
        filter: Filter::default(),
        action: BulkAction::Show,
        after,
        max: 1000,
    };
    match w.ask(1, Command::BulkOp(Box::new(bulk_op))) {
        Some(Outcome::BulkDone(bulk_done)) => (bulk_done.messages, bulk_done.next),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_page_of_messages_ends_at_a_mebibyte_of_fields() {
    let long = || -> Box<[u8]> { vec![b'x'; 300 << 10].into() };
    let attrs = || PutMore {
        attrs: vec![(b"a".as_slice().into(), long())],
        ..PutMore::default()
    };
    let status = || PutMore {
        past: Some(Box::new(Past {
            status: long(),
            ..Past::default()
        })),
        ..PutMore::default()
    };
    for more in [&attrs as &dyn Fn() -> PutMore, &status] {
        let mut w = World::new();
        for _ in 0..10 {
            let mut more = more();
            more.past.get_or_insert_default().state = State::Buried;
            w.put_as(Put {
                more: Some(Box::new(more)),
                ..prioritized("q", 1, "x")
            });
        }
        let (mut seen, mut after, mut pages) = (0, None, 0);
        loop {
            let (messages, next) = page(&mut w, after);
            assert!((1..=4).contains(&messages.len()), "{}", messages.len());
            seen += messages.len();
            pages += 1;
            match next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!((seen, pages), (10, 3));
    }
}

#[test]
fn a_reason_is_cut_as_an_error_is() {
    let mut w = World::new();
    let id = w.put("q", "x");
    let bury = Command::Settle {
        id,
        by: By::Anyone,
        how: How::Bury {
            priority: None,
            reason: vec![b'x'; 1 << 20].into(),
        },
    };
    assert_eq!(w.ask(1, bury), Some(Outcome::Done));
    let (messages, _) = page(&mut w, None);
    let status = messages[0]
        .extra
        .as_ref()
        .map_or(0, |extra| extra.status.len());
    assert_eq!(status, ERROR_BYTES_MAX);
}

#[test]
fn a_page_of_batches_ends_at_a_mebibyte() {
    let mut w = World::new();
    for _ in 0..100 {
        let new = NewBatch {
            description: vec![b'x'; 60_000].into(),
            complete: Some(Callback {
                queue: "c".into(),
                ..Callback::default()
            }),
            ..NewBatch::default()
        };
        let made = w.ask(1, Command::Batch(BatchRequest::New(Box::new(new))));
        assert!(matches!(made, Some(Outcome::Batch(_))), "{made:?}");
    }
    let (mut seen, mut after) = (0, BatchId(0));
    loop {
        let ask = BatchRequest::List {
            shard: 0,
            after,
            max: 1000,
        };
        let Some(Outcome::Batches(found, next)) = w.ask(1, Command::Batch(ask)) else {
            panic!("no batches");
        };
        assert!(found.len() <= 18, "{} on a page", found.len());
        seen += found.len();
        match next {
            Some((_, next)) => after = next,
            None => break,
        }
    }
    assert_eq!(seen, 100);
}
