//! Voices.
