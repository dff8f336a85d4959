//! Reading a command line.

/// Longest command line, its CR LF included.
pub(super) const LINE_MAX: usize = 224;

/// Longest tube name.
const NAME_MAX: usize = 200;

/// Longest wait of `reserve-with-timeout`, seconds.
const WAIT_MAX_S: u64 = i32::MAX as u64;

/// What a line asks for. Ids are those of jobs, times are seconds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    Put(Announced),
    Use(&'a [u8]),
    /// `None`: for as long as it takes.
    Reserve(Option<u64>),
    ReserveJob(u64),
    Delete(u64),
    Release(u64, u32, u32),
    Bury(u64, u32),
    Touch(u64),
    Watch(&'a [u8]),
    Ignore(&'a [u8]),
    Peek(u64),
    PeekReady,
    PeekDelayed,
    PeekBuried,
    Kick(u64),
    KickJob(u64),
    Stats,
    StatsJob(u64),
    StatsTube(&'a [u8]),
    ListTubes,
    ListTubeUsed,
    ListTubesWatched,
    PauseTube(&'a [u8], u32),
    Quit,
    BadFormat,
    Unknown,
}

/// What a put is announced with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    pub(super) rank: u32,
    pub(super) delay_s: u32,
    pub(super) ttr_s: u32,
    pub(super) len: u32,
}

/// Reads a line, given without its CR LF.
pub(super) fn parse(line: &[u8]) -> Request<'_> {
    if memchr::memchr(0, line).is_some() {
        return Request::BadFormat;
    }
    let (verb, rest) = match memchr::memchr(b' ', line) {
        Some(at) => (&line[..at], Some(&line[at + 1..])),
        None => (line, None),
    };
    let request = match rest {
        None => match verb {
            b"reserve" => Some(Request::Reserve(None)),
            b"peek-ready" => Some(Request::PeekReady),
            b"peek-delayed" => Some(Request::PeekDelayed),
            b"peek-buried" => Some(Request::PeekBuried),
            b"stats" => Some(Request::Stats),
            b"list-tubes" => Some(Request::ListTubes),
            b"list-tube-used" => Some(Request::ListTubeUsed),
            b"list-tubes-watched" => Some(Request::ListTubesWatched),
            b"quit" => Some(Request::Quit),
            _ => return unknown(line),
        },
        Some(rest) => {
            let fields = Fields(rest);
            let one = |what: fn(u64) -> Request<'static>| fields.clone().id().map(what);
            match verb {
                b"put" => fields.put(),
                b"reserve-with-timeout" => fields
                    .last(WAIT_MAX_S)
                    .map(|seconds| Request::Reserve(Some(seconds))),
                b"delete" => one(Request::Delete),
                b"release" => fields.release(),
                b"bury" => fields.bury(),
                b"touch" => one(Request::Touch),
                b"use" => tube(rest).map(Request::Use),
                b"watch" => tube(rest).map(Request::Watch),
                b"ignore" => tube(rest).map(Request::Ignore),
                b"reserve-job" => one(Request::ReserveJob),
                b"peek" => one(Request::Peek),
                b"kick" => one(Request::Kick),
                b"kick-job" => one(Request::KickJob),
                b"stats-job" => one(Request::StatsJob),
                b"stats-tube" => tube(rest).map(Request::StatsTube),
                b"pause-tube" => fields.pause(),
                _ => return unknown(line),
            }
        }
    };
    request.unwrap_or(Request::BadFormat)
}

/// What begins like a command without arguments, or `pause-tube`, has a bad
/// format; beanstalkd looks no further than this either.
fn unknown(line: &[u8]) -> Request<'_> {
    const KNOWN: [&[u8]; 9] = [
        b"reserve",
        b"peek-ready",
        b"peek-delayed",
        b"peek-buried",
        b"stats",
        b"list-tubes",
        b"list-tube-used",
        b"list-tubes-watched",
        b"pause-tube",
    ];
    match KNOWN.iter().any(|known| line.starts_with(known)) {
        true => Request::BadFormat,
        false => Request::Unknown,
    }
}

/// A whole rest of a line as a tube name.
fn tube(name: &[u8]) -> Option<&[u8]> {
    let legal = (1..=NAME_MAX).contains(&name.len())
        && name[0] != b'-'
        && name.iter().all(|&byte| is_name_byte(byte));
    legal.then_some(name)
}

/// True if a tube may have this name.
pub(super) fn is_tube(name: &[u8]) -> bool {
    tube(name).is_some()
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-+/;.$_()".contains(&byte)
}

/// Arguments: decimal numbers after any number of spaces.
#[derive(Clone)]
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn skip_spaces(&mut self) {
        while let [b' ', rest @ ..] = self.0 {
            self.0 = rest;
        }
    }

    fn number(&mut self, most: u64) -> Option<u64> {
        self.skip_spaces();
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit());
        let len = digits.count();
        let (digits, rest) = self.0.split_at(len);
        self.0 = rest;
        let value = digits.iter().try_fold(0u64, |value, digit| {
            value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        })?;
        (len > 0 && value <= most).then_some(value)
    }

    fn small(&mut self) -> Option<u32> {
        // The bound keeps it within `u32`.
        self.number(u64::from(u32::MAX)).map(|value| value as u32)
    }

    fn last(mut self, most: u64) -> Option<u64> {
        self.number(most).filter(|_| self.0.is_empty())
    }

    fn id(self) -> Option<u64> {
        self.last(u64::MAX)
    }

    fn last_small(&mut self) -> Option<u32> {
        self.small().filter(|_| self.0.is_empty())
    }

    fn put(mut self) -> Option<Request<'a>> {
        Some(Request::Put(Announced {
            rank: self.small()?,
            delay_s: self.small()?,
            ttr_s: self.small()?,
            len: self.last_small()?,
        }))
    }

    fn release(mut self) -> Option<Request<'a>> {
        let id = self.number(u64::MAX)?;
        Some(Request::Release(id, self.small()?, self.last_small()?))
    }

    fn bury(mut self) -> Option<Request<'a>> {
        let id = self.number(u64::MAX)?;
        Some(Request::Bury(id, self.last_small()?))
    }

    fn pause(mut self) -> Option<Request<'a>> {
        self.skip_spaces();
        let name = self.0.split(|byte| !is_name_byte(*byte)).next()?;
        self.0 = &self.0[name.len()..];
        let seconds = self.last_small()?;
        tube(name).map(|name| Request::PauseTube(name, seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let put = |rank, delay_s, ttr_s, len| {
            Request::Put(Announced {
                rank,
                delay_s,
                ttr_s,
                len,
            })
        };
        for (line, expected) in [
            ("put 1 2 3 4", put(1, 2, 3, 4)),
            ("put  1  2  3  4", put(1, 2, 3, 4)),
            ("put 4294967295 0 0 0", put(u32::MAX, 0, 0, 0)),
            ("put 4294967296 0 0 0", Request::BadFormat),
            ("put 1 2 3", Request::BadFormat),
            ("put 1 2 3 4 ", Request::BadFormat),
            ("put 1 2 3 4x", Request::BadFormat),
            ("put\t1 2 3 4", Request::Unknown),
            ("put", Request::Unknown),
            ("PUT 1 2 3 4", Request::Unknown),
            ("", Request::Unknown),
            (" ", Request::Unknown),
            ("foo\0", Request::BadFormat),
            ("reserve", Request::Reserve(None)),
            ("reserve x", Request::BadFormat),
            ("reserve ", Request::BadFormat),
            ("reservex", Request::BadFormat),
            ("reserve-with-timeout 0", Request::Reserve(Some(0))),
            (
                "reserve-with-timeout 2147483647",
                Request::Reserve(Some(2_147_483_647)),
            ),
            ("reserve-with-timeout 2147483648", Request::BadFormat),
            ("reserve-with-timeout -1", Request::BadFormat),
            ("reserve-with-timeout 0x", Request::BadFormat),
            (
                "reserve-job 18446744073709551615",
                Request::ReserveJob(u64::MAX),
            ),
            ("reserve-job 18446744073709551616", Request::BadFormat),
            ("delete 1", Request::Delete(1)),
            ("delete  1", Request::Delete(1)),
            ("delete 1 ", Request::BadFormat),
            ("delete", Request::Unknown),
            ("release 1 2 3", Request::Release(1, 2, 3)),
            ("release 1 2", Request::BadFormat),
            ("bury 1 2", Request::Bury(1, 2)),
            ("bury 1", Request::BadFormat),
            ("touch 7", Request::Touch(7)),
            ("use a-b", Request::Use(b"a-b")),
            ("use -a", Request::BadFormat),
            ("use a b", Request::BadFormat),
            ("use ", Request::BadFormat),
            ("use", Request::Unknown),
            ("watch +/;.$_()9Z", Request::Watch(b"+/;.$_()9Z")),
            ("ignore caf\u{e9}", Request::BadFormat),
            ("kick 1x", Request::BadFormat),
            ("kick 3", Request::Kick(3)),
            ("kick-job 3", Request::KickJob(3)),
            ("peek-ready x", Request::BadFormat),
            ("peek 1", Request::Peek(1)),
            ("stats x", Request::BadFormat),
            ("stats-job 1", Request::StatsJob(1)),
            ("stats-tube t", Request::StatsTube(b"t")),
            ("list-tube", Request::Unknown),
            ("list-tubes", Request::ListTubes),
            ("pause-tube  t  5", Request::PauseTube(b"t", 5)),
            ("pause-tube t", Request::BadFormat),
            ("pause-tube t -1", Request::BadFormat),
            ("pause-tube -t 1", Request::BadFormat),
            ("pause-tube", Request::BadFormat),
            ("quit", Request::Quit),
            ("quitx", Request::Unknown),
            ("quit now", Request::Unknown),
        ] {
            assert_eq!(parse(line.as_bytes()), expected, "{line:?}");
        }
        let long = [b'a'; NAME_MAX + 1];
        assert!(is_tube(&long[1..]) && !is_tube(&long));
    }
}
