use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::*;

fn ask(guard: &Guard, method: Method, headers: &[(&'static str, &str)]) -> Result<(), Denied> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::from_static(name);
        map.append(name, value.parse().expect("a header"));
    }
    let peer = Some(IpAddr::from([127, 0, 0, 1]));
    guard.check(peer, &method, &Uri::from_static("/q/test"), &map)?;
    match guard.logged_in(&map) {
        true => Ok(()),
        false => Err(Denied::Login),
    }
}

#[test]
fn hosts_that_are_not_ours_are_rebound_names() {
    let guard = Guard {
        hosts: vec!["queue.example".to_owned()],
        ..Guard::default()
    };
    for known in [
        "127.0.0.1:3333",
        "[::1]:3333",
        "[::1]",
        "localhost",
        "LOCALHOST:3333",
        "rq.localhost:1",
        "10.1.2.3",
        "queue.example:80",
    ] {
        assert_eq!(
            ask(&guard, Method::GET, &[("host", known)]),
            Ok(()),
            "{known}"
        );
    }
    for strange in [
        "evil.example",
        "evil.example:3333",
        "localhost.evil.example",
        "[::1].evil.example",
        "[::1]evil.example:80",
        "[::1",
        "localhost:80.evil.example",
        "localhost:80:evil.example",
        "127.0.0.1:80@evil.example",
        "",
        "a b",
    ] {
        let denied = ask(&guard, Method::GET, &[("host", strange)]);
        assert_eq!(denied, Err(Denied::Host), "{strange}");
    }
    let short = Guard {
        short_hosts: true,
        ..Guard::default()
    };
    assert_eq!(ask(&short, Method::GET, &[("host", "queue_1:80")]), Ok(()));
    for strange in [
        "localhost, evil",
        "a b",
        "\u{fffd}",
        "loc\u{ff}alhost",
        ":80",
    ] {
        let denied = ask(&short, Method::GET, &[("host", strange)]);
        assert_eq!(denied, Err(Denied::Host), "{strange}");
    }
    // Old clients name none; no browser is among them.
    assert_eq!(ask(&guard, Method::GET, &[]), Ok(()));
    let any = Guard {
        hosts: vec!["*".to_owned()],
        ..Guard::default()
    };
    assert_eq!(ask(&any, Method::GET, &[("host", "evil.example")]), Ok(()));
    for (bytes, expected) in [(260, Ok(())), (261, Err(Denied::Host))] {
        let long = format!("{}.localhost:3333", "a".repeat(bytes - 15));
        assert_eq!(long.len(), bytes);
        for guard in [&guard, &any] {
            assert_eq!(
                ask(guard, Method::GET, &[("host", long.as_str())]),
                expected
            );
        }
    }
}

#[test]
fn an_absolute_target_names_the_host() {
    let mut headers = HeaderMap::new();
    headers.insert(HOST, "localhost".parse().expect("a header"));
    let uri = Uri::from_static("http://evil.example/q/test");
    let denied = Guard::default().check(None, &Method::GET, &uri, &headers);
    assert_eq!(denied, Err(Denied::Host));
}

#[test]
fn a_page_of_another_site_may_not_post() {
    let guard = Guard::default();
    let host = ("host", "127.0.0.1:3333");
    let own: &[&[(&'static str, &str)]] = &[
        &[host],
        &[host, ("origin", "http://127.0.0.1:3333")],
        &[host, ("referer", "http://127.0.0.1:3333/q/test")],
        &[
            host,
            ("sec-fetch-site", "same-origin"),
            ("origin", "http://127.0.0.1:3333"),
        ],
        &[host, ("sec-fetch-site", "none")],
    ];
    for headers in own {
        assert_eq!(ask(&guard, Method::POST, headers), Ok(()), "{headers:?}");
    }
    let strange: &[&[(&'static str, &str)]] = &[
        &[host, ("origin", "http://evil.example")],
        &[host, ("origin", "http://127.0.0.1:80")],
        &[host, ("origin", "null")],
        &[host, ("origin", "")],
        &[host, ("referer", "http://evil.example/127.0.0.1:3333")],
        &[host, ("sec-fetch-site", "cross-site")],
        &[host, ("sec-fetch-site", "same-site")],
        &[("origin", "http://evil.example")],
    ];
    for headers in strange {
        let denied = ask(&guard, Method::POST, headers);
        assert_eq!(denied, Err(Denied::Origin), "{headers:?}");
        // A link to this server from elsewhere is fine.
        assert_eq!(ask(&guard, Method::GET, headers), Ok(()), "{headers:?}");
    }
}

/// Pairs of a name and a password.
fn users(pairs: &str) -> Vec<User> {
    let user = |pair: &str| {
        let (name, password) = pair.split_once(':').expect("a pair");
        User {
            name: name.to_owned(),
            password: password.to_owned(),
        }
    };
    pairs.split_whitespace().map(user).collect()
}

#[test]
fn logins() {
    let guard = Guard {
        users: users("anna:se:cret  bert:geheim"),
        ..Guard::default()
    };
    let code = |pair: &str| format!("Basic {}", BASE64_STANDARD.encode(pair));
    for right in ["anna:se:cret", "bert:geheim"] {
        let code = code(right);
        assert_eq!(
            ask(&guard, Method::GET, &[("authorization", &code)]),
            Ok(())
        );
    }
    for wrong in [
        "anna:geheim",
        "anna:",
        "anna",
        "",
        ":",
        "anna:se:cret ",
        "Anna:se:cret",
        "x:y",
    ] {
        let denied = ask(&guard, Method::GET, &[("authorization", &code(wrong))]);
        assert_eq!(denied, Err(Denied::Login), "{wrong}");
    }
    for rubbish in ["Basic", "Basic !!!", "Bearer abc", ""] {
        let denied = ask(&guard, Method::GET, &[("authorization", rubbish)]);
        assert_eq!(denied, Err(Denied::Login), "{rubbish}");
    }
    assert_eq!(ask(&guard, Method::GET, &[]), Err(Denied::Login));
}

#[test]
fn addresses() {
    let guard = Guard {
        allowed_ips: ["10.0.0.0/8", "192.168.1.7/32", "::1/128"]
            .map(|text| text.parse().expect("a network"))
            .to_vec(),
        ..Guard::default()
    };
    for (peer, allowed) in [
        ("10.200.3.4", true),
        ("192.168.1.7", true),
        ("192.168.1.8", false),
        ("::1", true),
        ("::ffff:10.0.0.1", true),
        ("127.0.0.1", false),
    ] {
        let ip = peer.parse::<IpAddr>().expect("an address");
        assert_eq!(guard.address_allowed(Some(ip)), allowed, "{peer}");
    }
    assert!(
        guard.address_allowed(None),
        "a unix socket has its own rights"
    );
}

#[test]
fn the_configured_logins_are_checked_first() {
    let guard = |users_text: &str| Guard {
        users: users(users_text),
        logins: Some(Logins(std::sync::Arc::new(|name, password| match name {
            "carl" => Some(password == b"secret"),
            "anna" | "" => None,
            _ => Some(false),
        }))),
        ..Guard::default()
    };
    let code = |pair: &str| format!("Basic {}", BASE64_STANDARD.encode(pair));
    let may = |guard: &Guard, pair: &str| {
        ask(guard, Method::GET, &[("authorization", &code(pair))]).is_ok()
    };
    let known = guard("anna:own bert:own");
    assert!(may(&known, "carl:secret") && may(&known, "anna:own"));
    assert!(!may(&known, "carl:wrong") && !may(&known, "anna:wrong") && !may(&known, "bert:own"));
    assert_eq!(ask(&known, Method::GET, &[]), Err(Denied::Login));
    // Nobody has a name here, so what is not forbidden may.
    let open = guard("");
    assert_eq!(ask(&open, Method::GET, &[]), Ok(()));
    assert!(!may(&open, "dora:x") && !may(&open, "carl:wrong") && may(&open, "carl:secret"));
}
