//! Parts of addresses.

use axum::extract::FromRequestParts;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::PathRejection;
use hyper::http::request::Parts;
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// The parts of an address that stand for something, as `axum`'s; what cannot be read is a
/// [`Problem`] as everything else is.
pub struct Path<T>(pub T);

impl<S, T> FromRequestParts<S> for Path<T>
where
    S: Send + Sync,
    T: DeserializeOwned + Send,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        read.map(|axum::extract::Path(parts)| Self(parts))
            .map_err(|rejection| refused(&rejection))
    }
}

fn refused(rejection: &PathRejection) -> Problem {
    if let PathRejection::FailedToDeserializePathParams(failed) = rejection
        && let ErrorKind::InvalidUtf8InPathParam { key } = failed.kind()
    {
        let detail = "escaped bytes (%NN) are UTF-8; other bytes of a name are written \\xNN";
        return Problem::field(key, detail);
    }
    Problem::no_such_page()
}
