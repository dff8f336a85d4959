//! The protocol over HTTP, with a client API of the test's own behind it.

mod clock;
mod moves;
mod random;
mod unknown;
mod world;
