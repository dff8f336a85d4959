//! AWS Signature Version 4, of a POST to `/` with JSON.

use anyhow::{Context as _, Result};
use chrono::{DateTime, Utc};
use ring::{digest, hmac};

/// Who asks.
pub(super) struct Keys {
    pub(super) id: String,
    pub(super) secret: String,
    /// Of keys for a while.
    pub(super) token: Option<String>,
}

impl Keys {
    /// As every program of AWS has them.
    ///
    /// # Errors
    /// There are none.
    pub(super) fn of_environment() -> Result<Self> {
        let of = |name| {
            std::env::var(name)
                .ok()
                .filter(|text: &String| !text.is_empty())
        };
        let needed = |name| of(name).with_context(|| format!("SQS asks for keys: set {name}"));
        Ok(Self {
            id: needed("AWS_ACCESS_KEY_ID")?,
            secret: needed("AWS_SECRET_ACCESS_KEY")?,
            token: of("AWS_SESSION_TOKEN"),
        })
    }
}

/// What is asked.
pub(super) struct Request<'a> {
    pub(super) host: &'a str,
    pub(super) region: &'a str,
    pub(super) target: &'a str,
    pub(super) body: &'a [u8],
    pub(super) now: DateTime<Utc>,
}

/// Headers with their values, sorted by name.
type Headers = Vec<(&'static str, String)>;

impl Request<'_> {
    /// Its headers, with the one that signs all of it.
    pub(super) fn signed(&self, keys: &Keys) -> Headers {
        let mut headers = vec![
            ("content-type", "application/x-amz-json-1.0".to_owned()),
            ("host", self.host.to_owned()),
            ("x-amz-date", self.now.format("%Y%m%dT%H%M%SZ").to_string()),
        ];
        if let Some(token) = &keys.token {
            headers.push(("x-amz-security-token", token.clone()));
        }
        headers.push(("x-amz-target", self.target.to_owned()));
        // So that errors have the names that its first protocol gave them.
        headers.push(("x-amzn-query-mode", "true".to_owned()));
        let scope = Scope {
            now: self.now,
            region: self.region,
            service: "sqs",
        };
        let authorization = scope.authorization(keys, "POST", &headers, self.body);
        headers.push(("authorization", authorization));
        headers
    }
}

/// For when and whom a signature counts.
struct Scope<'a> {
    now: DateTime<Utc>,
    region: &'a str,
    service: &'a str,
}

impl Scope<'_> {
    /// The header `authorization` of a request to `/` without a query; the headers are sorted.
    fn authorization(
        &self,
        keys: &Keys,
        method: &str,
        headers: &[(&'static str, String)],
        body: &[u8],
    ) -> String {
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let lines: String = headers
            .iter()
            .map(|(name, value)| format!("{name}:{}\n", value.trim()))
            .collect();
        let canonical = format!("{method}\n/\n\n{lines}\n{names}\n{}", sha256(body));
        let day = self.now.format("%Y%m%d").to_string();
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let text = format!(
            "AWS4-HMAC-SHA256\n{}\n{scope}\n{}",
            self.now.format("%Y%m%dT%H%M%SZ"),
            sha256(canonical.as_bytes())
        );
        let mut key = format!("AWS4{}", keys.secret).into_bytes();
        for part in [&day, self.region, self.service, "aws4_request"] {
            key = mac(&key, part).as_ref().to_vec();
        }
        format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={}",
            keys.id,
            hex(mac(&key, &text).as_ref())
        )
    }
}

fn mac(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use chrono::TimeZone as _;

    use super::*;

    fn keys(secret: &str) -> Keys {
        Keys {
            id: "AKIDEXAMPLE".to_owned(),
            secret: secret.to_owned(),
            token: None,
        }
    }

    /// `get-vanilla` and `post-vanilla` of the suite that AWS published.
    #[test]
    fn signatures_are_as_published() {
        let scope = Scope {
            now: Utc.with_ymd_and_hms(2015, 8, 30, 12, 36, 0).unwrap(),
            region: "us-east-1",
            service: "service",
        };
        let keys = keys("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        let headers = [
            ("host", "example.amazonaws.com".to_owned()),
            ("x-amz-date", "20150830T123600Z".to_owned()),
        ];
        for (method, signature) in [
            (
                "GET",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "POST",
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
        ] {
            let wanted = format!(
                "AWS4-HMAC-SHA256 \
                 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                 SignedHeaders=host;x-amz-date, Signature={signature}"
            );
            assert_eq!(scope.authorization(&keys, method, &headers, b""), wanted);
        }
    }

    /// As botocore signs it.
    #[test]
    fn a_request_to_sqs_is_signed_with_its_body_and_target() {
        let request = Request {
            host: "127.0.0.1:9324",
            region: "us-east-1",
            target: "AmazonSQS.CreateQueue",
            body: br#"{"QueueName": "q"}"#,
            now: Utc.with_ymd_and_hms(2026, 11, 22, 1, 26, 4).unwrap(),
        };
        let headers = request.signed(&keys("secret"));
        let (_, authorization) = headers.last().unwrap();
        let wanted = "SignedHeaders=content-type;host;x-amz-date;x-amz-target;x-amzn-query-mode, \
                      Signature=521952736f0a12ad7349d7be86d9391b550e61a773926521fdb6ff95fc5df203";
        assert!(authorization.ends_with(wanted), "{authorization}");
    }
}
