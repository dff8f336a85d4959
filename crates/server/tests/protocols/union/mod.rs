//! One queue, every protocol: what is put through one is taken through any other,
//! on the real binary, over sockets.

mod pairs;
mod protocols;
mod rules;
mod scripts;
mod several;
