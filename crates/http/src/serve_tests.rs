use super::*;
use crate::Limits;

struct Plain(Settings);

impl Serve for Plain {
    fn protocol(&self) -> &'static str {
        "http"
    }

    fn settings(&self) -> &Settings {
        &self.0
    }

    fn ends(&self) {}

    fn answer(self: Arc<Self>, _: Option<IpAddr>, _: Request<Incoming>) -> Answering {
        Box::pin(std::future::ready(Response::default()))
    }
}

#[test]
fn connections_of_one_address_are_limited_unless_it_brings_those_of_many() {
    let settings = Settings {
        trusted_proxies: vec!["198.51.100.0/24".parse().expect("a network")],
        limits: Limits {
            connections_max: 8,
            ..Limits::default()
        },
        ..Settings::default()
    };
    let clients = Arc::clone(&settings.clients);
    let site = Site {
        serve: Arc::new(Plain(settings)),
        tls_reported: AtomicBool::new(false),
    };
    let limits = &site.settings().limits;
    let slots = Slots::new(limits.connections_max, limits.apart_max);
    let come = |peer: Option<[u8; 4]>| site.arrive(peer.map(IpAddr::from), &slots);
    let mut there: Vec<_> = (0..6).map(|_| come(Some([192, 0, 2, 1]))).collect();
    assert!(there.iter().all(Result::is_ok));
    for refused in 1..3 {
        let why = come(Some([192, 0, 2, 1])).map(drop);
        assert_eq!(why, Err(CROWDS));
        assert_eq!(clients.crowded(), refused);
    }
    assert!(come(Some([192, 0, 2, 2])).is_ok(), "another address");
    there.pop();
    assert!(come(Some([192, 0, 2, 1])).is_ok(), "one has left");
    // This machine, unix sockets and proxies that are trusted may have all places.
    for peer in [Some([127, 0, 0, 1]), None, Some([198, 51, 100, 9])] {
        let all: Vec<_> = (0..8).map(|_| come(peer)).collect();
        assert!(all.iter().all(Result::is_ok), "{peer:?}");
    }
    assert_eq!(clients.crowded(), 2);
}
