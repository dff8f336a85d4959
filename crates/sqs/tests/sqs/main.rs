//! The protocol over HTTP, with a door of the test's own behind it.

mod clock;
mod moves;
mod random;
mod unknown;
mod world;
