//! The client that asks the shards on behalf of a connection.

use std::sync::Arc;

use quintet_client::ClientApi;
use quintet_types::ClientId;

/// A client that leaves when this is dropped: of a connection ([`crate::Client::own`]), or of a
/// request that has none.
pub struct Guest {
    client_api: Arc<dyn ClientApi>,
    client_id: ClientId,
}

impl Guest {
    /// A new client, without a subscription.
    pub fn new(client_api: &Arc<dyn ClientApi>) -> Self {
        Self {
            client_api: Arc::clone(client_api),
            client_id: client_api.enter_here(Box::new(|_, _| {})),
        }
    }

    /// The number under which the shards know it.
    pub fn client_id(&self) -> ClientId {
        self.client_id
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.client_api.leave(self.client_id);
    }
}
