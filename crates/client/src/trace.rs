//! W3C trace context, level 1: what a message brings along of the request that
//! put it, in the attributes [`TRACEPARENT`] and [`TRACESTATE`].

/// The attribute, and the header, with the trace and the span.
pub const TRACEPARENT: &str = "traceparent";
/// The same of what vendors add.
pub const TRACESTATE: &str = "tracestate";

/// Bytes of `tracestate` that are kept: as many as everybody has to pass on.
const STATE_MAX: usize = 512;

/// True if it is a `traceparent`: version, trace, span, flags. A later version
/// may have more behind them.
pub fn is_traceparent(text: &str) -> bool {
    let hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let some = |part: &str| part.bytes().any(|b| b != b'0');
    let mut parts = text.splitn(5, '-');
    let mut next = || parts.next().unwrap_or_default();
    let (version, trace, span, flags) = (next(), next(), next(), next());
    let known = version == "00";
    hex(version, 2)
        && version != "ff"
        && hex(trace, 32)
        && some(trace)
        && hex(span, 16)
        && some(span)
        && hex(flags, 2)
        && match parts.next() {
            None => true,
            Some(more) => !known && text.len() <= STATE_MAX && more.bytes().all(is_visible),
        }
}

/// True if it is a `tracestate` that is passed on.
pub fn is_tracestate(text: &str) -> bool {
    let fine = |byte: u8| is_visible(byte) || matches!(byte, b' ' | b'\t');
    !text.is_empty() && text.len() <= STATE_MAX && text.bytes().all(fine)
}

fn is_visible(byte: u8) -> bool {
    byte.is_ascii_graphic()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_taken_as_the_standard_has_it() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let span = "00f067aa0ba902b7";
        let made = |version, trace, span, rest| format!("{version}-{trace}-{span}-{rest}");
        let zeros = "0".repeat(32);
        for (text, fine) in [
            (made("00", trace, span, "01"), true),
            (made("cc", trace, span, "01-what-comes"), true),
            (made("00", trace, span, "01-more"), false),
            (made("ff", trace, span, "01"), false),
            (made("00", &zeros, span, "01"), false),
            (made("00", trace, &zeros[..16], "01"), false),
            (made("00", &trace.to_uppercase(), span, "01"), false),
            (made("00", &trace[1..], span, "01"), false),
            (made("00", trace, span, "1"), false),
            (made("00", trace, span, "0\0"), false),
            (format!("00-{trace}-{span}"), false),
            (String::new(), false),
        ] {
            assert_eq!(is_traceparent(&text), fine, "{text}");
        }
        assert!(is_tracestate("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"));
        assert!(!is_tracestate("a=\u{e9}") && !is_tracestate("a=\0") && !is_tracestate(""));
        assert!(is_tracestate(&"x".repeat(512)) && !is_tracestate(&"x".repeat(513)));
    }
}
