//! AWS Signature Version 4: made for requests that are sent, checked of those
//! that come.

use std::fmt::Write as _;

use chrono::{DateTime, NaiveDateTime, Utc};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use quintet_types::hex;
use ring::{digest, hmac};
use subtle::ConstantTimeEq as _;

use crate::fault::{Fault, Shape};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// How a moment is written.
const MOMENT: &str = "%Y%m%dT%H%M%SZ";
/// A client's clock may differ by so much, seconds.
const SKEW: i64 = 15 * 60;
/// A request in a URL is good for so long at most, seconds.
const EXPIRES_MAX: i64 = 7 * 24 * 3600;
/// Headers that are signed at most.
const HEADERS_MAX: usize = 100;

/// Bytes that a signature writes as `%XX`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// For when and what a signature counts.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// When it was made.
    pub now: DateTime<Utc>,
    /// `us-east-1`.
    pub region: &'a str,
    pub service: &'a str,
}

/// The parts of a request that its signature covers.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// `POST`.
    pub method: &'a str,
    /// As it stands in the request.
    pub path: &'a str,
    /// Without the `?`, and without a signature.
    pub query: &'a str,
    /// Names in small letters with their values, sorted.
    pub headers: &'a [(&'a str, String)],
    /// The SHA-256 of the body, in hexadecimal digits.
    pub body: &'a str,
}

impl Signed<'_> {
    /// The canonical form, and the names of its headers.
    fn canonical(&self) -> (String, String) {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let mut text = String::with_capacity(512);
        text.push_str(self.method);
        text.push('\n');
        text.push_str(&canonical_path(self.path));
        text.push('\n');
        text.push_str(&canonical_query(self.query));
        text.push('\n');
        for (name, value) in self.headers {
            let words: Vec<&str> = value.split_ascii_whitespace().collect();
            let _never = writeln!(text, "{name}:{}", words.join(" "));
        }
        let _never = write!(text, "\n{names}\n{}", self.body);
        (text, names)
    }

    /// The signature in hexadecimal digits, and the names of the headers.
    fn signature(&self, scope: &Scope<'_>, secret: &str) -> (String, String) {
        let (canonical, names) = self.canonical();
        let text = format!(
            "{ALGORITHM}\n{}\n{}\n{}",
            scope.now.format(MOMENT),
            scope.text(),
            sha256(canonical.as_bytes())
        );
        let day = scope.day();
        let mut key = format!("AWS4{secret}").into_bytes();
        for part in [&day, scope.region, scope.service, "aws4_request"] {
            key = mac(&key, part).as_ref().to_vec();
        }
        (hex(mac(&key, &text).as_ref()), names)
    }

    /// The header `authorization` of a request.
    pub fn authorization(&self, scope: &Scope<'_>, id: &str, secret: &str) -> String {
        let (signature, names) = self.signature(scope, secret);
        format!(
            "{ALGORITHM} Credential={id}/{}, SignedHeaders={names}, Signature={signature}",
            scope.text()
        )
    }
}

impl Scope<'_> {
    fn day(&self) -> String {
        self.now.format("%Y%m%d").to_string()
    }

    fn text(&self) -> String {
        let (day, region, service) = (self.day(), self.region, self.service);
        format!("{day}/{region}/{service}/aws4_request")
    }
}

/// The SHA-256 of bytes, in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// When it is, as the header `x-amz-date` says it.
pub fn moment(now: DateTime<Utc>) -> String {
    now.format(MOMENT).to_string()
}

fn mac(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

/// Each segment is encoded, once more if it was.
fn canonical_path(path: &str) -> String {
    let segments = path.split('/');
    let segments = segments.map(|segment| utf8_percent_encode(segment, ESCAPED).to_string());
    match segments.collect::<Vec<String>>().join("/") {
        path if path.is_empty() => "/".to_owned(),
        path => path,
    }
}

fn canonical_query(query: &str) -> String {
    let encoded = |text: &str| {
        let plain = text.replace('+', " ");
        let bytes: Vec<u8> = percent_decode_str(&plain).collect();
        percent_encoding::percent_encode(&bytes, ESCAPED).to_string()
    };
    let fields = query.split('&').filter(|field| !field.is_empty());
    let mut fields: Vec<(String, String)> = fields
        .map(|field| {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            (encoded(name), encoded(value))
        })
        .collect();
    fields.sort();
    let fields = fields.iter().map(|(name, value)| format!("{name}={value}"));
    fields.collect::<Vec<String>>().join("&")
}

/// Keys that requests may be signed with.
#[derive(Clone, Default)]
pub struct Keys(Vec<(String, String)>);

/// Not for logs: the secrets stay out.
impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

impl Keys {
    /// Ids with their secrets.
    pub fn new(keys: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(keys.into_iter().collect())
    }

    /// True if there are none: no signature is looked at then.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&self, id: &str) -> Option<(&str, &str)> {
        let mut keys = self.0.iter();
        let (id, secret) = keys.find(|(known, _)| known == id)?;
        Some((id, secret))
    }
}

/// A received request, whose signature is to be checked.
pub struct Came<'a> {
    /// `POST`.
    pub method: &'a str,
    /// As it stands in the request.
    pub path: &'a str,
    /// Without the `?`.
    pub query: &'a str,
    /// The values of a header, if it is there, joined by commas.
    pub header: &'a (dyn Fn(&str) -> Option<String> + Sync),
    pub body: &'a [u8],
}

/// The signature of a request.
struct Says {
    id: String,
    day: String,
    region: String,
    service: String,
    end: String,
    headers: Vec<String>,
    signature: String,
    date: String,
    /// In seconds, of a request whose signature is in its URL.
    expires: Option<i64>,
}

fn mismatch() -> Fault {
    Fault::new(
        Shape::SignatureDoesNotMatch,
        "The request signature we calculated does not match the signature you provided. Check \
         your AWS Secret Access Key and signing method.",
    )
}

fn incomplete(why: &str) -> Fault {
    Fault::new(Shape::IncompleteSignature, why.to_owned())
}

/// The value of a parameter of the query.
fn parameter(query: &str, name: &str) -> Option<String> {
    let mut fields = form_urlencoded::parse(query.as_bytes());
    let (_, value) = fields.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    Some(value.into_owned())
}

impl Says {
    fn read(came: &Came<'_>) -> Result<Self, Fault> {
        let (credential, headers, signature, date, expires) = match (
            (came.header)("authorization"),
            parameter(came.query, "X-Amz-Signature"),
        ) {
            (Some(claimed), _) => {
                let rest = claimed.trim().strip_prefix(ALGORITHM);
                let rest =
                    rest.ok_or_else(|| incomplete("Authorization is not AWS4-HMAC-SHA256."))?;
                let part = |name: &str| {
                    let mut parts = rest.split(',').map(str::trim);
                    let value = parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
                    value.map(str::to_owned).ok_or_else(|| {
                        incomplete(&format!(
                            "Authorization header requires '{name}' parameter."
                        ))
                    })
                };
                let date = (came.header)("x-amz-date").ok_or_else(|| {
                    incomplete("Authorization header requires existence of 'X-Amz-Date'.")
                })?;
                (
                    part("Credential")?,
                    part("SignedHeaders")?,
                    part("Signature")?,
                    date,
                    None,
                )
            }
            (None, Some(signature)) => {
                let part = |name: &str| {
                    parameter(came.query, name)
                        .ok_or_else(|| incomplete(&format!("The query requires '{name}'.")))
                };
                if part("X-Amz-Algorithm")? != ALGORITHM {
                    return Err(incomplete("X-Amz-Algorithm is not AWS4-HMAC-SHA256."));
                }
                let expires = part("X-Amz-Expires")?.parse();
                let expires = expires
                    .ok()
                    .filter(|seconds| (0..=EXPIRES_MAX).contains(seconds));
                let expires =
                    expires.ok_or_else(|| incomplete("X-Amz-Expires is out of range."))?;
                (
                    part("X-Amz-Credential")?,
                    part("X-Amz-SignedHeaders")?,
                    signature,
                    part("X-Amz-Date")?,
                    Some(expires),
                )
            }
            (None, None) => {
                return Err(Fault::not_signed());
            }
        };
        // An id may have slashes in it, the rest has not.
        let mut parts: Vec<&str> = credential.rsplitn(5, '/').collect();
        parts.reverse();
        let [id, day, region, service, end] = parts[..] else {
            return Err(incomplete("Credential must have five parts."));
        };
        let headers: Vec<String> = headers.split(';').map(str::to_owned).collect();
        if headers.len() > HEADERS_MAX {
            return Err(incomplete("SignedHeaders has too many names."));
        }
        Ok(Self {
            id: id.to_owned(),
            day: day.to_owned(),
            region: region.to_owned(),
            service: service.to_owned(),
            end: end.to_owned(),
            headers,
            signature,
            date,
            expires,
        })
    }

    fn signs(&self, name: &str) -> bool {
        self.headers.iter().any(|header| header == name)
    }

    /// Whether it signs each header that must be signed in such a request.
    fn signs_needed(&self, came: &Came<'_>) -> bool {
        let presigned = self.expires.is_some();
        let has = |name: &str| (came.header)(name).is_some();
        let needed = [
            ("host", true),
            ("x-amz-date", !presigned),
            ("x-amz-target", has("x-amz-target")),
            ("content-type", !presigned && has("content-type")),
        ];
        needed
            .iter()
            .all(|(name, needed)| !needed || self.signs(name))
    }
}

/// Looks at a request's signature, when the wall clock shows `now`. Answers the
/// id and the secret of the key it was made with.
///
/// # Errors
/// It has none, or a wrong one.
pub fn check<'k>(
    came: &Came<'_>,
    keys: &'k Keys,
    now: DateTime<Utc>,
) -> Result<(&'k str, &'k str), Fault> {
    let says = Says::read(came)?;
    let (id, secret) = keys.of(&says.id).ok_or_else(Fault::unknown_key)?;
    let date = NaiveDateTime::parse_from_str(&says.date, MOMENT)
        .map_err(|_| incomplete("X-Amz-Date is not a date."))?
        .and_utc();
    let scope = Scope {
        now: date,
        region: &says.region,
        service: &says.service,
    };
    if says.service != "sqs" || says.end != "aws4_request" || says.day != scope.day() {
        return Err(mismatch());
    }
    if !says.signs_needed(came) {
        return Err(mismatch());
    }
    let headers: Vec<(&str, String)> = says
        .headers
        .iter()
        .map(|name| (name.as_str(), (came.header)(name).unwrap_or_default()))
        .collect();
    let query: String = came
        .query
        .split('&')
        .filter(|field| !field.starts_with("X-Amz-Signature="))
        .collect::<Vec<&str>>()
        .join("&");
    let body = sha256(came.body);
    if (came.header)("x-amz-content-sha256")
        .is_some_and(|claimed| claimed != body && claimed != "UNSIGNED-PAYLOAD")
    {
        return Err(mismatch());
    }
    let signed = Signed {
        method: came.method,
        path: came.path,
        query: &query,
        headers: &headers,
        body: &body,
    };
    let (wanted, _) = signed.signature(&scope, secret);
    if !bool::from(wanted.as_bytes().ct_eq(says.signature.as_bytes())) {
        return Err(mismatch());
    }
    // After the signature: a client without a key learns nothing of our clock.
    let age = now.signed_duration_since(date).num_seconds();
    let lasts = says.expires.unwrap_or(SKEW);
    let text = if age > lasts {
        let earliest = moment(now - chrono::Duration::seconds(lasts));
        format!(
            "Signature expired: {} is now earlier than {earliest}",
            says.date
        )
    } else if age < -SKEW {
        let latest = moment(now + chrono::Duration::seconds(SKEW));
        format!(
            "Signature not yet current: {} is still later than {latest}",
            says.date
        )
    } else {
        return Ok((id, secret));
    };
    Err(Fault::new(Shape::SignatureDoesNotMatch, text))
}

#[cfg(test)]
mod tests {
    use chrono::TimeZone as _;

    use super::*;

    /// `get-vanilla` and `post-vanilla` of the suite that AWS published.
    #[test]
    fn signatures_are_as_published() {
        let scope = Scope {
            now: Utc.with_ymd_and_hms(2015, 8, 30, 12, 36, 0).unwrap(),
            region: "us-east-1",
            service: "service",
        };
        let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        let headers = [
            ("host", "example.amazonaws.com".to_owned()),
            ("x-amz-date", "20150830T123600Z".to_owned()),
        ];
        for (method, query, signature) in [
            (
                "GET",
                "",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "POST",
                "",
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            // `get-vanilla-query-order-key-case`.
            (
                "GET",
                "Param2=value2&Param1=value1",
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
        ] {
            let signed = Signed {
                method,
                path: "/",
                query,
                headers: &headers,
                body: &sha256(b""),
            };
            let wanted = format!(
                "AWS4-HMAC-SHA256 \
                 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                 SignedHeaders=host;x-amz-date, Signature={signature}"
            );
            assert_eq!(signed.authorization(&scope, "AKIDEXAMPLE", secret), wanted);
        }
    }

    const BODY: &[u8] = br#"{"QueueName": "q"}"#;
    const SIGNATURE: &str = "521952736f0a12ad7349d7be86d9391b550e61a773926521fdb6ff95fc5df203";

    fn header(name: &str) -> Option<String> {
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261122/us-east-1/sqs/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date;x-amz-target;x-amzn-query-mode, \
             Signature={SIGNATURE}"
        );
        let value = match name {
            "authorization" => &authorization,
            "content-type" => "application/x-amz-json-1.0",
            "host" => "127.0.0.1:9324",
            "x-amz-date" => "20261122T012604Z",
            "x-amz-target" => "AmazonSQS.CreateQueue",
            "x-amzn-query-mode" => " true ",
            _ => return None,
        };
        Some(value.to_owned())
    }

    fn came<'a>(body: &'a [u8], header: &'a (dyn Fn(&str) -> Option<String> + Sync)) -> Came<'a> {
        Came {
            method: "POST",
            path: "/",
            query: "",
            header,
            body,
        }
    }

    fn keys() -> Keys {
        Keys::new([("AKIDEXAMPLE".to_owned(), "secret".to_owned())])
    }

    /// Case 66: what botocore signs.
    #[test]
    fn the_worked_request_passes_and_no_other_does() {
        let at = Utc.with_ymd_and_hms(2026, 11, 22, 1, 26, 4).unwrap();
        let keys = keys();
        let good = check(&came(BODY, &header), &keys, at);
        assert_eq!(good, Ok(("AKIDEXAMPLE", "secret")));
        let shape =
            |came: Came<'_>, keys: &Keys, at| check(&came, keys, at).expect_err("refused").shape;
        let other_body = br#"{"QueueName": "r"}"#;
        assert_eq!(
            shape(came(other_body, &header), &keys, at),
            Shape::SignatureDoesNotMatch
        );
        let unknown = Keys::new([("OTHER".to_owned(), "secret".to_owned())]);
        assert_eq!(
            shape(came(BODY, &header), &unknown, at),
            Shape::InvalidClientTokenId
        );
        let wrong = Keys::new([("AKIDEXAMPLE".to_owned(), "Secret".to_owned())]);
        assert_eq!(
            shape(came(BODY, &header), &wrong, at),
            Shape::SignatureDoesNotMatch
        );
        let none = |_: &str| None;
        assert_eq!(
            shape(came(BODY, &none), &keys, at),
            Shape::MissingAuthenticationToken
        );
        let odd = |name: &str| (name == "authorization").then(|| "x".to_owned());
        assert_eq!(
            shape(came(BODY, &odd), &keys, at),
            Shape::IncompleteSignature
        );
        // 16 minutes, and a day, in either direction.
        for minutes in [16, -16, 24 * 60, -24 * 60] {
            let then = at + chrono::Duration::minutes(minutes);
            assert_eq!(
                shape(came(BODY, &header), &keys, then),
                Shape::SignatureDoesNotMatch,
                "{minutes}"
            );
        }
        let soon = at + chrono::Duration::minutes(14);
        assert!(check(&came(BODY, &header), &keys, soon).is_ok());
        // The target is there and has to be signed.
        let unsigned = |name: &str| match name {
            "authorization" => Some(header(name)?.replace("x-amz-target;", "")),
            _ => header(name),
        };
        assert_eq!(
            shape(came(BODY, &unsigned), &keys, at),
            Shape::SignatureDoesNotMatch
        );
        let other_hash = |name: &str| match name {
            "x-amz-content-sha256" => Some(sha256(b"other")),
            _ => header(name),
        };
        assert_eq!(
            shape(came(BODY, &other_hash), &keys, at),
            Shape::SignatureDoesNotMatch
        );
    }

    /// A good signature over too little: an attacker between could ask for something else with it.
    #[test]
    fn headers_that_name_the_request_must_be_signed_if_sent() {
        let at = Utc.with_ymd_and_hms(2026, 11, 22, 1, 26, 4).unwrap();
        let scope = Scope {
            now: at,
            region: "us-east-1",
            service: "sqs",
        };
        let signed = Signed {
            method: "POST",
            path: "/",
            query: "",
            headers: &[
                ("host", "h:1".to_owned()),
                ("x-amz-date", "20261122T012604Z".to_owned()),
            ],
            body: &sha256(BODY),
        };
        let authorization = signed.authorization(&scope, "AKIDEXAMPLE", "secret");
        let check_with = |more: &str| {
            let header = |name: &str| match name {
                "authorization" => Some(authorization.clone()),
                "host" => Some("h:1".to_owned()),
                "x-amz-date" => Some("20261122T012604Z".to_owned()),
                name => (name == more).then(|| "AmazonSQS.PurgeQueue".to_owned()),
            };
            check(&came(BODY, &header), &keys(), at).map(|_| ())
        };
        assert_eq!(check_with(""), Ok(()));
        for more in ["x-amz-target", "content-type"] {
            assert!(check_with(more).is_err(), "{more}");
        }
    }

    #[test]
    fn a_request_may_be_signed_in_its_url() {
        let at = Utc.with_ymd_and_hms(2026, 11, 22, 1, 26, 4).unwrap();
        let host = |name: &str| (name == "host").then(|| "h:1".to_owned());
        let query = "Action=ListQueues&X-Amz-Algorithm=AWS4-HMAC-SHA256\
             &X-Amz-Credential=AKIDEXAMPLE%2F20261122%2Feu-west-1%2Fsqs%2Faws4_request\
             &X-Amz-Date=20261122T012604Z&X-Amz-Expires=3600&X-Amz-SignedHeaders=host";
        let signed = Signed {
            method: "GET",
            path: "/",
            query,
            headers: &[("host", "h:1".to_owned())],
            body: &sha256(b""),
        };
        let scope = Scope {
            now: at,
            region: "eu-west-1",
            service: "sqs",
        };
        let (signature, _) = signed.signature(&scope, "secret");
        let query = format!("{query}&X-Amz-Signature={signature}");
        let came = |query| Came {
            method: "GET",
            path: "/",
            query,
            header: &host,
            body: b"",
        };
        let keys = keys();
        let check_at = |query, at| check(&came(query), &keys, at);
        assert!(check_at(&query, at + chrono::Duration::minutes(59)).is_ok());
        assert!(check_at(&query, at + chrono::Duration::minutes(61)).is_err());
        let other = query.replace("ListQueues", "PurgeQueue");
        assert!(check_at(&other, at).is_err());
        let longer = query.replace("3600", "604801");
        let fault = check_at(&longer, at).expect_err("too long");
        assert_eq!(fault.shape, Shape::IncompleteSignature);
    }
}
