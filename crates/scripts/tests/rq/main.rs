//! RQ without HTTP: the sheet's cases, bad input, crashes. Scripts run
//! for real, the shards are simulated.

mod blobs;
mod common;
mod errack;
mod examples;
mod keeper;
mod messages;
mod misuse;
mod restart;
mod runs;
mod socket;
