//! The log on simulated and real disks: crashes, damage, limits, runs.

mod common;
mod conformance;
mod crash;
mod damage;
mod frames;
mod limits;
mod memory;
mod mirror;
mod reader;
mod run;
mod run_crash;
mod run_damage;
