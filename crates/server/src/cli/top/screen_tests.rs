use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

use super::super::look::tests::queue;
use super::super::view;
use super::*;

fn screen() -> Screen {
    let mut screen = Screen::new(String::new());
    let mut mails = queue("mails", 30, 5);
    mails["paused"] = true.into();
    let queues = [queue("work", 20, 0), mails, queue("other", 10, 9)];
    screen.seen(Look {
        at_ms: 1000,
        queues: queues
            .iter()
            .map(|queue| Queue::of(queue, &json!({})))
            .collect(),
        connections: None,
    });
    screen
}

fn names(screen: &Screen) -> Vec<&str> {
    let rows = screen.rows();
    rows.iter().map(|queue| queue.name.as_str()).collect()
}

fn shown(screen: &Screen) -> String {
    let mut terminal = Terminal::new(TestBackend::new(100, 9)).expect("a terminal");
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
    assert_eq!(screen.asks, Asks::Nothing);
    screen.counted("mails".to_owned(), 0);
    assert_eq!(screen.asks, Asks::Nothing, "there is nothing to ask");
}

#[test]
fn pause_resumes_what_is_paused_and_retry_is_of_the_picked_one() {
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
