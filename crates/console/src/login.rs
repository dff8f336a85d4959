//! The page to log in, and the way out.

use std::net::IpAddr;
use std::time::Instant;

use askama::Template;
use axum::extract::Request;
use axum::response::Response;
use hyper::header::{HeaderMap, SET_COOKIE};
use hyper::{Method, StatusCode};

use super::frame::theme;
use super::{Posted, assets};
use quintet_api::Problem as Refused;
use quintet_http::{Answer, App, Gate, Problem, reply, sessions};

/// Where the page is.
pub const LOGIN: &str = "/login";

#[derive(Template)]
#[template(path = "login.html")]
struct Page {
    root: String,
    theme: Option<&'static str>,
    sheet: &'static str,
    icon: &'static str,
    next: String,
    name: String,
    /// Why the last try led nowhere.
    wrong: Option<&'static str>,
}

/// First parts of the console's addresses, apart from `/` itself. Its pages and the shards check
/// each requester's rights.
pub const PLACES: [&str; 19] = [
    "operations",
    "batches",
    "bulk",
    "cluster",
    "connections",
    "cron",
    "find",
    "hooks",
    "leases",
    "log",
    "logout",
    "messages",
    "put",
    "queues",
    "schedules",
    "scripts",
    "settings",
    "waiting",
    "workers",
];

/// True of the console's addresses; the others are RQ's, the API's, or of tools.
pub fn has(path: &str) -> bool {
    let place = path.split('/').nth(1).unwrap_or_default();
    place.is_empty() || PLACES.contains(&place)
}

/// True if a browser asks for a page, which is led to the login. RQ's pages ask for it as RQ's
/// clients know it, and tools want a status.
pub fn is_page(method: &Method, path: &str, headers: &HeaderMap) -> bool {
    let accept = headers.get(hyper::header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    *method == Method::GET && has(path) && accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Leads a browser to the login, and from there back to `target`, an address under the root.
pub fn lead(app: &App, target: &str) -> Response {
    let next: String = form_urlencoded::byte_serialize(target.as_bytes()).collect();
    reply::redirect(&app.link(&format!("login?next={next}")))
}

/// `/login`, for who is nobody yet.
///
/// # Errors
/// The form cannot be read.
pub async fn login(
    app: &App,
    gate: &dyn Gate,
    peer: Option<IpAddr>,
    request: Request,
) -> Result<Response, Problem> {
    let asks = *request.method() == Method::POST;
    let theme = theme(request.headers());
    let form = app.form(request).await?;
    let field = |name| form.form.get(name).unwrap_or_default().to_owned();
    let mut page = Page {
        root: app.settings().relative_root.clone(),
        theme,
        sheet: &assets::SHEET.name,
        icon: &assets::ICON.name,
        next: field("next"),
        name: field("name"),
        wrong: None,
    };
    if !asks {
        return Ok(reply::show(StatusCode::OK, &page));
    }
    let (status, wrong) = match sessions::log_in(gate, peer, &page.name, &field("secret")).await {
        Answer::In(who, proof) => {
            let began = app.sessions().begin(who, proof, Instant::now());
            let cookie = began.map_err(|error| Problem::internal(error.to_string()))?;
            let mut response = reply::redirect(&app.link(inside(&page.next)));
            response.headers_mut().insert(SET_COOKIE, cookie);
            return Ok(response);
        }
        Answer::No => (StatusCode::FORBIDDEN, "Wrong name, password or token."),
        Answer::NotNow(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    };
    page.wrong = Some(wrong);
    Ok(reply::show(status, &page))
}

/// The address a login leads to, from the root on. Two slashes, or a backslash that some browsers
/// take for one, would begin a host's name.
fn inside(next: &str) -> &str {
    let next = next.trim_start_matches('/');
    match next.bytes().all(|byte| byte.is_ascii_graphic()) && !next.starts_with('\\') {
        true => next,
        false => "",
    }
}

/// `POST /logout`.
pub(super) async fn logout(Posted(context, form): Posted) -> Result<Response, Refused> {
    let app = &context.console.app;
    let mut response = reply::redirect(&app.link("login"));
    if let Some(token) = context.requester.session {
        let everywhere = form.form.get("everywhere").is_some();
        if let Some(client) = &context.requester.client {
            // This connection is to get the reply.
            client.is_of(None, 0);
        }
        let cookie = app.sessions().end(token, everywhere);
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_this_site_alone() {
        for (next, leads) in [
            ("/queues/a?state=buried", "queues/a?state=buried"),
            ("//evil.example", "evil.example"),
            ("/\\evil.example", ""),
            ("/\t/evil.example", ""),
            ("", ""),
        ] {
            assert_eq!(inside(next), leads, "{next}");
        }
    }
}
