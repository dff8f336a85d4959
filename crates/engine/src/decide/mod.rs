//! Deciding: each command looks at the state, refuses or states facts. A
//! refusal is always found before the first fact.

mod admin;
mod put;
mod settle;
mod show;
mod take;
mod timers;
