use std::sync::atomic::{AtomicU64, Ordering};

use hyper::Method;
use hyper::header::COOKIE;
use quintet_types::{Name, Operation, Verb};

use super::*;
use crate::clients::Clients;
use crate::cookie::TOKEN;
use crate::gate::{Counted, Pace, Tell};

/// Everybody's login counts if it came with this number.
#[derive(Default)]
struct Everybody(AtomicU64);

impl Gate for Everybody {
    fn is_used(&self) -> bool {
        true
    }
    fn log_in(&self, _: Option<IpAddr>, _: LoginCredentials<'_>, notify: Tell) {
        notify(Answer::No);
    }
    fn arrive(&self, _: Option<IpAddr>) -> Result<Counted, &'static str> {
        Ok(None)
    }
    fn failed(&self, _: Option<IpAddr>) {}
    fn hold(
        &self,
        _: Option<IpAddr>,
        _: Option<Principal>,
        _: u64,
    ) -> Result<Vec<quintet_client::Share>, crate::gate::Full> {
        Ok(Vec::new())
    }

    fn pace(&self, _: Option<IpAddr>, _: Option<Principal>) -> Pace {
        Pace::In(Duration::ZERO)
    }
    fn may(&self, _: Principal, _: Verb, _: &Name) -> bool {
        true
    }
    fn may_server(&self, _: Principal) -> bool {
        true
    }
    fn may_read_metrics(&self, _: Principal) -> bool {
        true
    }
    fn note(
        &self,
        _: Principal,
        _: Option<IpAddr>,
        _: (Operation, &str),
        _: (u16, quintet_client::Did),
    ) {
    }
    fn name_of(&self, _: Principal) -> Option<Arc<str>> {
        None
    }
    fn counts(&self, _: Principal, proof: u64) -> bool {
        self.0.load(Ordering::Relaxed) == proof
    }
}

const ANN: Principal = Principal(7);
const BOB: Principal = Principal(8);

fn sessions(most: usize) -> Sessions {
    Sessions::new(most, Duration::from_secs(60), "/", false)
}

/// The token a browser would show.
fn shown(cookie: &HeaderValue) -> Token {
    let text = cookie.to_str().expect("text");
    let (pair, _) = text.split_once(';').expect("attributes");
    let mut headers = HeaderMap::new();
    let both = format!("theme=dark; {pair}");
    headers.insert(COOKIE, both.parse().expect("a header"));
    Token::of(&headers).expect("a token")
}

#[test]
fn a_session_lasts_its_time() {
    let (gate, now, sessions) = (Everybody::default(), Instant::now(), sessions(10));
    let cookie = sessions.begin(ANN, 0, now).expect("random numbers");
    let token = shown(&cookie);
    let at = |seconds| now + Duration::from_secs(seconds);
    assert_eq!(sessions.find(&gate, token, at(59)), Some((ANN, 0)));
    assert_eq!(sessions.find(&gate, token, at(60)), None);
    assert_eq!(sessions.find(&gate, Token([0; TOKEN]), now), None);
}

/// A stream of events is a reply that has no end of its own.
#[tokio::test(flavor = "current_thread")]
async fn connections_of_a_session_end_with_its_time() {
    let (now, sessions) = (Instant::now(), sessions(10));
    let cookie = sessions.begin(ANN, 0, now).expect("random numbers");
    let clients = Arc::new(Clients::default());
    let gate: Arc<dyn Gate> = Arc::new(Everybody::default());
    let [streams, other] = [(); 2].map(|()| {
        let present = clients.come("http", &"here".into(), None, false);
        present.client().asks(&Method::GET, "/api/v1/events");
        present.client().is_of(Some(&(ANN, Arc::clone(&gate))), 0);
        present
    });
    streams.client().is_in(sessions.of(shown(&cookie)));
    let is_closed = async |seconds| {
        clients.close_logged_out(now + Duration::from_secs(seconds), false);
        tokio::select! {
            biased;
            () = streams.is_closed() => true,
            () = other.is_closed() => panic!("it came with a login of its own"),
            () = std::future::ready(()) => false,
        }
    };
    assert!(!is_closed(59).await);
    assert!(is_closed(60).await);
}

#[test]
fn a_session_ends_with_the_credentials_of_its_user() {
    let (gate, now, sessions) = (Everybody::default(), Instant::now(), sessions(10));
    let token = shown(&sessions.begin(ANN, 0, now).expect("random numbers"));
    assert_eq!(sessions.find(&gate, token, now), Some((ANN, 0)));
    gate.0.store(1, Ordering::Relaxed);
    assert_eq!(sessions.find(&gate, token, now), None);
    // Nor is it there again when that is as it was.
    gate.0.store(0, Ordering::Relaxed);
    assert_eq!(sessions.find(&gate, token, now), None);
}

#[test]
fn one_or_all_of_a_user_s_sessions_end() {
    let (gate, now, sessions) = (Everybody::default(), Instant::now(), sessions(10));
    let [a, b, c, other] = [ANN, ANN, ANN, BOB]
        .map(|who| shown(&sessions.begin(who, 0, now).expect("random numbers")));
    let there = |token| sessions.find(&gate, token, now).is_some();
    sessions.end(a, false);
    assert_eq!([a, b, c, other].map(there), [false, true, true, true]);
    let gone = sessions.end(b, true);
    assert!(gone.to_str().expect("text").contains("Max-Age=0"));
    assert_eq!([a, b, c, other].map(there), [false, false, false, true]);
}

#[test]
fn the_oldest_ends_for_one_too_many() {
    let (gate, now, sessions) = (Everybody::default(), Instant::now(), sessions(2));
    let begun = |second| {
        let at = now + Duration::from_secs(second);
        shown(&sessions.begin(ANN, 0, at).expect("random numbers"))
    };
    let all = [begun(1), begun(2), begun(3)];
    let there = all.map(|token| sessions.find(&gate, token, now).is_some());
    assert_eq!(there, [false, true, true]);
}

#[test]
fn only_scripts_of_nobody_and_requests_of_this_site_get_the_cookie() {
    let (gate, now) = (Everybody::default(), Instant::now());
    let secure = Sessions::new(1, Duration::from_secs(60), "/q/", true);
    let cookie = secure.begin(ANN, 0, now).expect("random numbers");
    let text = cookie.to_str().expect("text");
    let (_, attributes) = text.split_once("; ").expect("attributes");
    let wanted = "Path=/q/; Max-Age=60; HttpOnly; SameSite=Strict; Secure";
    assert_eq!(attributes, wanted);
    assert!(text.starts_with("quintet_session="), "{text}");
    let whole = Sessions::new(1, Duration::from_secs(60), "/", true);
    let cookie = whole.begin(ANN, 0, now).expect("random numbers");
    let text = cookie.to_str().expect("text");
    assert!(text.starts_with("__Host-quintet_session="), "{text}");
    assert_eq!(whole.find(&gate, shown(&cookie), now), Some((ANN, 0)));
    let plain = sessions(1).begin(ANN, 0, now).expect("random numbers");
    assert!(!plain.to_str().expect("text").contains("Secure"));
}

#[test]
fn rubbish_is_no_token() {
    let bad = ["", "00", &"0".repeat(65), &"g".repeat(64), &"é".repeat(32)];
    for text in bad {
        assert!(Token::read(text).is_none(), "{text}");
    }
    assert!(Token::read(&"aF".repeat(32)).is_some());
}
