//! A client API whose commands a test keeps, delays or notes.

use std::io::{self, Read};
use std::sync::Arc;

use quintet_client::{Arrive, ClientApi, OnOutcome, Operator, StoreError};
use quintet_types::{Body, Caller, ClientId, Command, Ms, Name};

use crate::client_api::SimApi;

/// A client API that gives every command to a function, and leaves all else to a [`SimApi`]. The
/// function decides if and when the command goes on.
pub struct Intercepted<F> {
    client_api: Arc<SimApi>,
    submit: F,
}

impl<F> Intercepted<F>
where
    F: Fn(&SimApi, Caller, Command, OnOutcome) + Send + Sync,
{
    /// Commands go to `submit`, with the API behind it.
    pub fn new(client_api: Arc<SimApi>, submit: F) -> Arc<Self> {
        Arc::new(Self { client_api, submit })
    }
}

impl<F: Send + Sync> Operator for Intercepted<F> {}

impl<F> ClientApi for Intercepted<F>
where
    F: Fn(&SimApi, Caller, Command, OnOutcome) + Send + Sync,
{
    fn now(&self) -> Ms {
        self.client_api.now()
    }

    fn wall(&self) -> Ms {
        self.client_api.wall()
    }

    fn epoch(&self) -> u64 {
        self.client_api.epoch()
    }

    fn enter(&self, arrive: Arrive) -> ClientId {
        self.client_api.enter(arrive)
    }

    fn leave(&self, client_id: ClientId) {
        self.client_api.leave(client_id);
    }

    fn submit(&self, caller: Caller, command: Command, reply: OnOutcome) {
        (self.submit)(&self.client_api, caller, command, reply);
    }

    fn read(&self, body: &Body, from: u64, into: &mut [u8]) -> io::Result<usize> {
        self.client_api.read(body, from, into)
    }

    fn store(&self, queue: &Name, len: u64, source: &mut dyn Read) -> Result<Body, StoreError> {
        self.client_api.store(queue, len, source)
    }
}
