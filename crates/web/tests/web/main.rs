//! HTTP through sockets: RQ's API, the console, events, files, relay.

mod api;
mod cases;
mod common;
mod console;
mod console_bulk;
mod console_lists;
mod console_scripts;
mod events;
mod files;
mod guard;
mod json;
#[path = "common/proxy.rs"]
mod proxy;
mod random;
mod relay;
// Its test is in there: the library is not compiled a second time for one test.
#[path = "../../src/rights.rs"]
mod rights;
mod router;
mod stops;
mod threads;
