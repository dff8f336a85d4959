//! Signed requests to SQS: a POST to `/` with JSON.

use anyhow::{Context as _, Result};
use chrono::{DateTime, Utc};
use quintet_sqs::sign::{self, Scope, Signed};

/// Credentials.
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
        let needed = |name| of(name).with_context(|| format!("SQS needs keys: set {name}"));
        Ok(Self {
            id: needed("AWS_ACCESS_KEY_ID")?,
            secret: needed("AWS_SECRET_ACCESS_KEY")?,
            token: of("AWS_SESSION_TOKEN"),
        })
    }
}

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
            ("x-amz-date", sign::moment(self.now)),
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
        let signed = Signed {
            method: "POST",
            path: "/",
            query: "",
            headers: &headers,
            body: &sign::sha256(self.body),
        };
        let authorization = signed.authorization(&scope, &keys.id, &keys.secret);
        headers.push(("authorization", authorization));
        headers
    }
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
