//! The client's side of RQ's HTTP API.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use ureq::tls::{Certificate, TlsConfig};
use ureq::typestate::WithBody;
use ureq::{Agent, RequestBuilder, SendBody};

/// Bytes of a reply that are read at most; messages with a large parameter are
/// the largest.
const REPLY_MAX: u64 = 16 << 20;

#[derive(Debug)]
pub(super) struct HttpReply {
    pub(super) status: u16,
    pub(super) body: String,
}

impl HttpReply {
    /// The body as JSON; null if it is none.
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// For people: the status and how the body begins.
    pub(super) fn shown(&self) -> String {
        let begin: String = self.body.chars().take(200).collect();
        format!("{} {begin}", self.status)
    }

    /// The value of `["ok", x]`; else the whole reply in words.
    pub(super) fn ok(&self) -> Result<String, String> {
        let json = self.json();
        match (self.status, json[0].as_str(), json[1].as_str()) {
            (200, Some("ok"), Some(text)) => Ok(text.to_owned()),
            _ => Err(self.shown()),
        }
    }
}

/// Asks other servers. Redirects are not followed: nothing RQ answers is one.
pub(super) struct Client {
    agent: Agent,
}

impl Client {
    /// Trusts the authorities in this file; empty: those that browsers do. `whole`: how long an
    /// exchange may take as a whole, if that is bounded.
    pub(super) fn new(ca: &str, whole: Option<Duration>) -> Result<Self, quintet_tls::Error> {
        let mut tls = TlsConfig::builder();
        if !ca.is_empty() {
            let all = quintet_tls::certificates(Path::new(ca))?;
            let all = all.iter().map(|one| Certificate::from_der(one).to_owned());
            tls = tls.root_certs(all.into());
        }
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .http_status_as_error(false)
            .max_redirects(0)
            // One kept open may be dead by its next use, and here is no second
            // try.
            .max_idle_connections(0)
            .timeout_global(whole)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            .timeout_recv_body(Some(Duration::from_secs(60)))
            .build();
        Ok(Self {
            agent: config.into(),
        })
    }

    pub(super) fn get(&self, url: &str) -> Result<HttpReply, String> {
        let (url, login) = split_login(url);
        let mut request = self.agent.get(&url);
        if let Some(login) = login {
            request = request.header("authorization", login);
        }
        reply(request.call())
    }

    /// A request with a body of this kind, and with the login in the address.
    fn post(&self, url: &str, media: &str) -> RequestBuilder<WithBody> {
        let (url, login) = split_login(url);
        let request = self.agent.post(&url).header("content-type", media);
        match login {
            Some(login) => request.header("authorization", login),
            None => request,
        }
    }

    /// Posts a urlencoded form.
    pub(super) fn form(&self, url: &str, fields: &[(&str, &str)]) -> Result<HttpReply, String> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(fields);
        let body = form.finish();
        let request = self.post(url, "application/x-www-form-urlencoded");
        reply(request.send(body.as_bytes()))
    }

    /// Posts a file as `filedata` of a multipart form, as it is read; the
    /// fields come behind it.
    pub(super) fn file(
        &self,
        url: &str,
        name: &str,
        file: File,
        fields: &[(&str, &str)],
    ) -> Result<HttpReply, String> {
        let len = file.metadata().map_err(|error| error.to_string())?.len();
        let boundary = boundary();
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"filedata\"; \
             filename=\"{}\"\r\nContent-Type: application/octet-stream\r\n\r\n",
            // As browsers do; no attachment's name has the others.
            name.replace('"', "%22")
        );
        let mut tail = String::from("\r\n");
        for (name, value) in fields {
            tail += &format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            );
        }
        tail += &format!("--{boundary}--\r\n");
        let total = head.len() as u64 + len + tail.len() as u64;
        // What is appended meanwhile would not fit the length.
        let mut body = head
            .as_bytes()
            .chain(file.take(len))
            .chain(io::Cursor::new(tail.into_bytes()));
        let request = self
            .post(url, &format!("multipart/form-data; boundary={boundary}"))
            .header("content-length", total.to_string());
        reply(request.send(SendBody::from_reader(&mut body)))
    }
}

fn reply(sent: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<HttpReply, String> {
    let mut response = sent.map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    let body = response
        .body_mut()
        .with_config()
        .limit(REPLY_MAX)
        .lossy_utf8(true)
        .read_to_string()
        .map_err(|error| error.to_string())?;
    Ok(HttpReply { status, body })
}

/// An address without the login in it, and the login as a header. It leads to the same host.
fn split_login(url: &str) -> (String, Option<String>) {
    let Some((scheme, rest)) = url.split_once("://") else {
        return (url.to_owned(), None);
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let Some((login, host)) = rest[..end].rsplit_once('@') else {
        return (url.to_owned(), None);
    };
    let login = percent_encoding::percent_decode_str(login).collect::<Vec<u8>>();
    let header = format!("Basic {}", BASE64_STANDARD.encode(login));
    (format!("{scheme}://{host}{}", &rest[end..]), Some(header))
}

/// Something no file holds by accident.
fn boundary() -> String {
    use std::hash::BuildHasher as _;
    // The standard library's hash keys are random.
    let half = |n: u64| std::hash::RandomState::new().hash_one(n);
    format!("quintet-{:016x}{:016x}", half(1), half(2))
}

#[cfg(test)]
mod tests {
    use super::split_login;
    use crate::builtin::hosts::target;

    #[test]
    fn logins_leave_the_address() {
        let plain = "http://host:1/q/a@b";
        assert_eq!(split_login(plain), (plain.to_owned(), None));
        assert_eq!(
            split_login("https://an%40na:ge:heim@host/q"),
            (
                "https://host/q".to_owned(),
                // an@na:ge:heim
                Some("Basic YW5AbmE6Z2U6aGVpbQ==".to_owned())
            )
        );
        assert_eq!(split_login("nonsense"), ("nonsense".to_owned(), None));
    }

    /// The one that was looked at.
    #[test]
    fn the_host_stays_the_same() {
        for url in [
            "http://host/q",
            "http://ann:pw@host/q",
            "http://ann@evil:pw@host/q",
            "http://host?@evil/",
            "http://host#@evil/",
            "http://host:1#x@evil:2/?a",
        ] {
            assert_eq!(target(&split_login(url).0), target(url), "{url}");
        }
    }
}
