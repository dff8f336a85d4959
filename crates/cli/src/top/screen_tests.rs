use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::snapshot::Findings;
use super::super::snapshot::tests::queue;
use super::super::view;
use super::*;

fn screen() -> Screen {
    let mut screen = Screen::new(String::new());
    let mut mails = queue("mails", 30, 5);
    mails["paused"] = true.into();
    let queues = [queue("work", 20, 0), mails, queue("other", 10, 9)];
    screen.seen(Snapshot {
        at_ms: 1000,
        queues: queues.iter().map(Queue::of).collect(),
        connections: None,
        findings: None,
    });
    screen
}

fn names(screen: &Screen) -> Vec<&str> {
    let rows = screen.rows();
    rows.iter().map(|queue| queue.name.as_str()).collect()
}

fn shown(screen: &Screen) -> String {
    shown_in(screen, 100, 9)
}

fn shown_in(screen: &Screen, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    let drawn = terminal.draw(|frame| view::draw(screen, frame));
    drawn.expect("drawn");
    terminal.backend().to_string()
}

#[test]
fn queues_are_sorted_and_filtered_and_the_picked_one_is_kept() {
    let mut screen = screen();
    assert_eq!(names(&screen), ["mails", "work", "other"]);
    screen.key(Key::Down);
    assert_eq!(screen.at(), 1);
    screen.key(Key::Char('i'));
    screen.key(Key::Down);
    assert_eq!(names(&screen), ["other", "work", "mails"]);
    assert_eq!(screen.at(), 2, "from work on");
    screen.key(Key::Char('<'));
    assert_eq!(
        (screen.sort, screen.at()),
        (Column::Name, 2),
        "mails is kept"
    );
    assert_eq!(names(&screen), ["work", "other", "mails"]);
    for key in "/or".chars() {
        screen.key(Key::Char(key));
    }
    assert_eq!(names(&screen), ["work"]);
    screen.key(Key::Escape);
    assert_eq!(names(&screen).len(), 3, "as it was before");
    assert_eq!(screen.key(Key::Char('q')), Act::Quit);
}

#[test]
fn purge_asks_with_the_count_and_only_yes_does_it() {
    let mut screen = screen();
    assert_eq!(screen.key(Key::Char('x')), Act::Count("mails".to_owned()));
    screen.counted("mails".to_owned(), 30);
    let text = shown(&screen);
    assert!(text.contains("30 messages of mails"), "{text}");
    assert_eq!(screen.key(Key::Enter), Act::Nothing);
    assert!(screen.says.contains("nothing"), "{}", screen.says);
    screen.counted("mails".to_owned(), 30);
    let purge = Act::Purge("mails".to_owned(), 30);
    assert_eq!(screen.key(Key::Char('y')), purge);
    assert_eq!(screen.prompt, Prompt::Nothing);
    screen.counted("mails".to_owned(), 0);
    assert_eq!(screen.prompt, Prompt::Nothing, "there is nothing to ask");
}

#[test]
fn the_key_for_pause_resumes_a_paused_queue_and_retry_is_of_the_picked_one() {
    let mut screen = screen();
    assert_eq!(screen.key(Key::Char('p')), Act::Resume("mails".to_owned()));
    screen.key(Key::Down);
    assert_eq!(screen.key(Key::Char('p')), Act::Pause("work".to_owned()));
    assert_eq!(screen.key(Key::Char('r')), Act::Retry("work".to_owned()));
    screen.filter = "nothing".to_owned();
    assert_eq!(
        screen.key(Key::Char('p')),
        Act::Nothing,
        "no queue is there"
    );
}

#[test]
fn the_screen_shows_queues_connections_and_what_is_followed() {
    let mut screen = screen();
    let text = shown(&screen);
    assert!(text.contains("3 queues, 60 ready"), "{text}");
    let line = text.lines().find(|line| line.contains("mails"));
    let line = line.expect("its line");
    for part in ["30", "30s", "paused"] {
        assert!(line.contains(part), "{line}");
    }
    screen.key(Key::Char('c'));
    assert!(shown(&screen).contains("not permitted"));
    screen.key(Key::Escape);
    screen.key(Key::Char('f'));
    assert_eq!(screen.page, Page::Follow("mails".to_owned()));
    screen.followed((0..2000).map(|at| format!("+ {at}")));
    assert_eq!(screen.lines.len(), LINES);
    let text = shown(&screen);
    assert!(text.contains("+ 1999"), "the newest are shown: {text}");
    screen.key(Key::Escape);
    assert_eq!(screen.page, Page::Queues);
    // Too small for anything.
    let mut tiny = Terminal::new(TestBackend::new(3, 1)).expect("a terminal");
    let drawn = tiny.draw(|frame| view::draw(&screen, frame));
    drawn.expect("drawn");
}

/// A screen of long names, long numbers and things that need attention.
fn bad() -> Screen {
    let mut screen = Screen::new(String::new());
    let name = "europe.invoices.retry.of.customers.12";
    let mut many = queue(name, 10_435, 1_234_567);
    many["delayed"] = 1_200_000.into();
    many["total_discarded"] = 25.into();
    let snapshot = |at_ms, queues: &[serde_json::Value]| Snapshot {
        at_ms,
        queues: queues.iter().map(Queue::of).collect(),
        connections: None,
        findings: Some(Findings {
            listed: vec![
                Finding {
                    queue: name.to_owned(),
                    alarm: true,
                    text: format!("{name} lost 25 messages within 1m: 25 dropped."),
                },
                Finding::default(),
            ],
            more: 7000,
        }),
    };
    let umlaut = queue("stra\\xc3\\x9fe", 1, 0);
    screen.seen(snapshot(1000, &[many.clone(), umlaut.clone()]));
    many["total_discarded"] = 75.into();
    many["ready"] = 10_385.into();
    screen.seen(snapshot(3000, &[many, umlaut]));
    screen
}

#[test]
fn a_narrow_screen_leaves_columns_out_and_never_cuts_a_number() {
    let screen = bad();
    for (width, columns) in [(80, 9), (120, 12), (200, 12), (30, 3), (12, 1)] {
        let text = shown_in(&screen, width, 24);
        let lines: Vec<&str> = text.lines().collect();
        let head = lines
            .iter()
            .find(|line| line.contains("name"))
            .expect("heads");
        let heads: Vec<&str> = head.trim_matches('"').split_whitespace().collect();
        assert_eq!(heads.len(), columns, "{text}");
        // Below the head, the queue with the most ready.
        let at = lines.iter().position(|line| line == head);
        let row = lines[at.expect("it is there") + 1];
        for number in ["10385", "1200000", "25.0"] {
            // Whole, or not at all.
            let begun = row.contains(&number[..number.len() - 1]);
            assert_eq!(row.contains(number), begun, "{width}: {text}");
        }
        assert!(row.contains("10385") || columns == 1, "{text}");
    }
    let wide = shown_in(&screen, 200, 24);
    assert!(wide.contains("stra\u{df}e"), "{wide}");
    assert!(
        wide.contains("europe.invoices.retry.of.customers.12 "),
        "{wide}"
    );
    let narrow = shown_in(&screen, 80, 24);
    assert!(narrow.contains("\u{2026}rs.12 "), "{narrow}");
    assert!(narrow.contains("? help"), "{narrow}");
    assert!(narrow.contains("25.0"), "lost messages are shown: {narrow}");
}

#[test]
fn the_title_leaves_out_whole_parts() {
    let screen = bad();
    assert_eq!(view::title(&screen, 23), "2 queues, 10386 ready");
    assert_eq!(view::title(&screen, 21), "2 queues, 10386 ready");
    assert_eq!(view::title(&screen, 20), "2 queues");
}

#[test]
fn rates_that_nobody_has_measured_are_not_0() {
    let title = view::title(&screen(), 200);
    assert!(title.contains(", - in/s, - out/s, "), "{title}");
    let title = view::title(&bad(), 200);
    assert!(title.contains(", 0 in/s, "), "{title}");
}

#[test]
fn bad_rows_have_colours_and_findings_are_above_the_queues() {
    let mut screen = bad();
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a terminal");
    let drawn = terminal.draw(|frame| view::draw(&screen, frame));
    let buffer = drawn.expect("drawn").buffer.clone();
    let colour = |x, y| buffer.cell((x, y)).expect("inside").fg;
    assert_eq!(colour(0, 1), ratatui::style::Color::Red, "the finding");
    assert_eq!(colour(0, 2), ratatui::style::Color::Yellow, "the warning");
    assert_eq!(colour(0, 4), ratatui::style::Color::Red, "its queue");
    assert_eq!(colour(0, 5), ratatui::style::Color::Reset, "a good one");
    screen.key(Key::Char('a'));
    let text = shown(&screen);
    assert!(text.contains("within 1m: 25 dropped."), "{text}");
    assert!(text.contains("and 7,000 more"), "{text}");
    let more = shown_in(&bad(), 80, 6);
    assert!(more.contains("7,002 more need attention: a"), "{more}");
}

#[test]
fn the_end_of_a_list_is_a_page_of_it() {
    let mut screen = bad();
    let finding = |at| Finding {
        text: format!("finding {at}."),
        ..Finding::default()
    };
    screen.snapshot.findings = Some(Findings {
        listed: (0..30).map(finding).collect(),
        more: 0,
    });
    screen.key(Key::Char('a'));
    for keys in [&[Key::End][..], &[Key::PageDown; 5]] {
        screen.key(Key::Home);
        for key in keys {
            screen.key(*key);
        }
        let text = shown_in(&screen, 80, 24);
        assert_eq!(text.matches("finding ").count(), PAGE, "{text}");
        assert!(text.contains("finding 29."), "{text}");
    }
    // A low screen shows the last one as well.
    for _ in 0..30 {
        screen.key(Key::Down);
    }
    let low = shown_in(&screen, 80, 4);
    assert!(low.contains("finding 29."), "{low}");
}

#[test]
fn enter_shows_all_of_a_queue_and_d_its_dead_letters() {
    let mut screen = bad();
    screen.key(Key::Enter);
    screen.why_slow = "The queue has no consumers.".to_owned();
    let text = shown_in(&screen, 80, 24);
    for part in ["dropped/s", "25.0", "10385", "no consumers", "within 1m"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let name = screen.snapshot.queues[0].name.clone();
    assert_eq!(screen.key(Key::Char('p')), Act::Pause(name.clone()));
    screen.key(Key::Char('d'));
    assert_eq!(screen.page, Page::Dead(name.clone()));
    let dead = ["123456789", "0s", "0", "no such user", ""];
    screen.dead = Some(vec![dead.map(str::to_owned)]);
    let text = shown_in(&screen, 60, 9);
    assert!(
        text.contains("123456789") && text.contains("no such us"),
        "{text}"
    );
    screen.key(Key::Escape);
    assert_eq!(screen.page, Page::Queue(name));
    assert!(screen.why_slow.is_empty(), "the answer is requested again");
    screen.snapshot.queues.clear();
    assert!(shown(&screen).contains("the queue is gone"));
    assert_eq!(screen.key(Key::Char('p')), Act::Nothing);
    screen.key(Key::Escape);
    screen.key(Key::Char('?'));
    assert!(shown_in(&screen, 80, 24).contains("never cuts numbers"));
}
