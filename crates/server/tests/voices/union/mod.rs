//! One queue, every voice: what is put through one is taken through any other,
//! on the real binary, over sockets.

mod pairs;
mod rules;
mod scripts;
mod several;
mod voices;
