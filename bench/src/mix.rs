//! How puts and takes follow each other.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::protocol::ClientRequest;

/// So many puts, then so many takes, again and again on each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mix {
    puts: u32,
    takes: u32,
}

/// Puts or takes in a row at most.
const ROW_MAX: u32 = 1_000;

impl Mix {
    /// A put, then a take.
    pub const BOTH: Self = Self { puts: 1, takes: 1 };
    /// Puts alone.
    pub const PUT: Self = Self { puts: 1, takes: 0 };
    /// Takes alone.
    pub const TAKE: Self = Self { puts: 0, takes: 1 };

    /// Reads `put+take`, `put`, `take` or `PUTS:TAKES`.
    ///
    /// # Errors
    /// A sentence that says what is taken.
    pub fn parse(text: &str) -> Result<Self, String> {
        let ratio = |text: &str| {
            let (puts, takes) = text.split_once(':')?;
            let (puts, takes) = (puts.parse().ok()?, takes.parse().ok()?);
            let fits = puts <= ROW_MAX && takes <= ROW_MAX && (puts, takes) != (0, 0);
            fits.then_some(Self { puts, takes })
        };
        match text {
            "put+take" => Ok(Self::BOTH),
            "put" => Ok(Self::PUT),
            "take" => Ok(Self::TAKE),
            text => ratio(text).ok_or_else(|| {
                format!("\"{text}\" is no mix; write put+take, put, take or PUTS:TAKES (3:1)")
            }),
        }
    }

    /// Request number `number` of a connection, from 0.
    pub(crate) fn ask(self, number: u64) -> ClientRequest {
        let row = u64::from(self.puts) + u64::from(self.takes);
        if number % row < u64::from(self.puts) {
            ClientRequest::Put
        } else {
            ClientRequest::Take
        }
    }

    /// Takes that a connection owes the puts of its row after `requested`
    /// requests: without them its messages would stay.
    pub(crate) fn owed(self, requested: u64) -> u64 {
        let (puts, takes) = (u64::from(self.puts), u64::from(self.takes));
        let in_row = requested % (puts + takes);
        let (put, taken) = (in_row.min(puts), in_row.saturating_sub(puts));
        put.min(takes).saturating_sub(taken)
    }
}

impl TryFrom<String> for Mix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Mix> for String {
    fn from(mix: Mix) -> Self {
        mix.to_string()
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BOTH => f.write_str("put+take"),
            Self::PUT => f.write_str("put"),
            Self::TAKE => f.write_str("take"),
            Self { puts, takes } => write!(f, "{puts}:{takes}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Mix;
    use crate::protocol::ClientRequest::{Put, Take};

    #[test]
    fn a_row_cut_short_owes_its_takes() {
        for (text, owed) in [
            ("put+take", [0, 1, 0, 1, 0]),
            ("put", [0; 5]),
            ("take", [0; 5]),
            ("3:1", [0, 1, 1, 1, 0]),
            ("2:2", [0, 1, 2, 1, 0]),
            ("1:2", [0, 1, 0, 0, 1]),
        ] {
            let mix = Mix::parse(text).unwrap();
            assert_eq!(
                [0, 1, 2, 3, 4].map(|requested| mix.owed(requested)),
                owed,
                "{text}"
            );
        }
    }

    #[test]
    fn each_mix_in_order() {
        for (text, asks) in [
            ("put+take", [Put, Take, Put, Take, Put]),
            ("put", [Put; 5]),
            ("take", [Take; 5]),
            ("3:1", [Put, Put, Put, Take, Put]),
            ("0:2", [Take; 5]),
        ] {
            let mix = Mix::parse(text).unwrap();
            let found: Vec<_> = (0..5).map(|number| mix.ask(number)).collect();
            assert_eq!(found, asks, "{text}");
            assert_eq!(Mix::parse(&mix.to_string()), Ok(mix));
        }
        for text in ["", "get", "0:0", "1:", "-1:1", "1:1001"] {
            assert!(Mix::parse(text).is_err(), "{text}");
        }
    }
}
