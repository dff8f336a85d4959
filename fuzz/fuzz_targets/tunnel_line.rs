//! The first line of a link, and who it says a client is: any bytes.

#![no_main]

use quintet_proxy::line::{Answer, Purpose};
use quintet_tls::Identity;

const CLUSTER: u64 = 0xc0;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Ok(line) = std::str::from_utf8(input) else {
        return;
    };
    let _either = Answer::read(line);
    for local in [false, true] {
        let Ok(Purpose::Tunnel(tunnel)) = Purpose::read(line, CLUSTER, local) else {
            continue;
        };
        if let Some(identity) = Identity::from_text(&tunnel.principal) {
            assert_eq!(Identity::from_text(&identity.to_text()), Some(identity));
        }
        // What was understood is said and understood again.
        let ask = Purpose::Tunnel(tunnel);
        let again = ask.line(Some(CLUSTER));
        let again = again.strip_suffix('\n').expect("a line has an end");
        assert!(!again.contains('\n'), "{again:?}");
        assert_eq!(Purpose::read(again, CLUSTER, false), Ok(ask));
    }
});
