//! A wait for what may never come.

/// Waits for a future; without one it never returns.
pub async fn or_never<T>(future: Option<impl Future<Output = T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
