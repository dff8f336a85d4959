//! Arguments of handlers.

use std::fmt::Display;
use std::sync::Arc;

use axum::extract::rejection::ExtensionRejection;
use axum::extract::{Extension, FromRequest, FromRequestParts, Request};
use axum::response::Response;
use hyper::header::{ETAG, HeaderValue};
use hyper::http::request::Parts;
use quintet_http::{RequestMemory, Requester};
use quintet_types::{MessageId, Name};
use serde::de::DeserializeOwned;

use super::path::Path;
use super::problem::Problem;
use super::{Api, read};

/// Reply of a handler, or its problem.
pub(super) type Answer = Result<Response, Problem>;

/// A reply with the version of what it shows, for `If-Match`.
pub(super) fn tagged(mut response: Response, version: Option<impl Display>) -> Response {
    let tag = version.and_then(|version| HeaderValue::from_str(&format!("\"{version}\"")).ok());
    if let Some(tag) = tag {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// The API, and who asks it.
pub(super) struct Call {
    pub(super) api: Arc<Api>,
    pub(super) requester: Requester,
}

impl FromRequestParts<Arc<Api>> for Call {
    type Rejection = ExtensionRejection;

    async fn from_request_parts(
        parts: &mut Parts,
        api: &Arc<Api>,
    ) -> Result<Self, ExtensionRejection> {
        let asks = Extension::<Requester>::from_request_parts(parts, api).await?;
        let (api, requester) = (Arc::clone(api), asks.0);
        Ok(Self { api, requester })
    }
}

/// The queue that an address names.
pub(super) struct OfQueue(pub(super) Name);

impl FromRequestParts<Arc<Api>> for OfQueue {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Problem> {
        let Path(queue) = Path::<String>::from_request_parts(parts, api).await?;
        read::queue(&queue).map(Self)
    }
}

/// The message that an address names.
pub(super) struct OfMessage(pub(super) MessageId);

impl FromRequestParts<Arc<Api>> for OfMessage {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Problem> {
        let Path(id) = Path::<String>::from_request_parts(parts, api).await?;
        read::message(&id).map(Self)
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
