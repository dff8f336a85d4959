//! Protocols without sockets: transcripts, decoders, log-ins.

mod anew;
mod common;
mod decoder;
mod decoder_random;
mod faktory;
mod held;
mod login;
mod said;
mod transcripts;
