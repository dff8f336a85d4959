//! Arguments of handlers.

use std::fmt::Display;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse as _, Response};
use hyper::header::{ETAG, HeaderValue};
use hyper::http::request::Parts;
use quintet_http::{DoneWith, RequestMemory, Requester};
use quintet_types::{MessageId, Name};
use serde::de::DeserializeOwned;

use super::path::Path;
use super::problem::Problem;
use super::{Api, read};

/// Reply of a handler, or its problem.
pub(super) type Answer = Result<Response, Problem>;

/// A reply with the version of what it shows, for `If-Match`.
pub(super) fn tagged(response: Response, version: Option<impl Display>) -> Response {
    let tag = version.and_then(|version| HeaderValue::from_str(&format!("\"{version}\"")).ok());
    (tag.map(|tag| [(ETAG, tag)]), response).into_response()
}

/// The reply to an operation on a message, whose queue the audit tells.
pub(super) fn done_to(response: Response, queue: Option<Name>) -> Response {
    let with = queue.map(|queue| Extension(DoneWith(format!("of {queue}"))));
    (with, response).into_response()
}

/// The API, and who asks it.
pub(super) struct Call {
    pub(super) api: Arc<Api>,
    pub(super) requester: Requester,
}

impl FromRequestParts<Arc<Api>> for Call {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Problem> {
        let asks = parts.extensions.get::<Requester>().cloned();
        let requester = asks.ok_or_else(|| Problem::internal("nobody requests this"))?;
        let api = Arc::clone(api);
        Ok(Self { api, requester })
    }
}

/// The same, and what the address names.
pub(super) struct Of<T>(pub(super) Arc<Api>, pub(super) Requester, pub(super) T);

pub(super) type OfQueue = Of<Name>;
pub(super) type OfMessage = Of<MessageId>;
/// Of a queue, and something of it by its name.
pub(super) type OfNamed = Of<(Name, String)>;

/// The thing that an address names: a queue, a message or another.
pub(super) trait InAddress: Sized {
    type Text: DeserializeOwned + Send;

    /// # Errors
    /// It is not the name of one.
    fn read(text: Self::Text) -> Result<Self, Problem>;
}

impl InAddress for Name {
    type Text = String;

    fn read(text: String) -> Result<Self, Problem> {
        read::queue(&text)
    }
}

impl InAddress for MessageId {
    type Text = String;

    fn read(text: String) -> Result<Self, Problem> {
        read::message(&text)
    }
}

impl InAddress for (Name, String) {
    type Text = (String, String);

    fn read((queue, name): Self::Text) -> Result<Self, Problem> {
        Ok((read::queue(&queue)?, name))
    }
}

impl<T: InAddress> FromRequestParts<Arc<Api>> for Of<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Problem> {
        let Call { api, requester } = Call::from_request_parts(parts, api).await?;
        let Path(text) = Path::<T::Text>::from_request_parts(parts, &api).await?;
        Ok(Self(api, requester, T::read(text)?))
    }
}

/// The body of a request, and the memory that it takes.
pub(super) struct RequestBody<T>(pub(super) T, pub(super) RequestMemory);

impl<T: DeserializeOwned + Send> FromRequest<Arc<Api>> for RequestBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, Problem> {
        let (body, share) = read::body::<T>(&api.app, request).await?;
        Ok(Self(body, share))
    }
}
