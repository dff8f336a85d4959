//! Numbers of commands in memcached's binary protocol.

pub(super) const GET: u8 = 0x00;
pub(super) const SET: u8 = 0x01;
pub(super) const DELETE: u8 = 0x04;
pub(super) const QUIT: u8 = 0x07;
pub(super) const FLUSH: u8 = 0x08;
pub(super) const GETQ: u8 = 0x09;
pub(super) const NOOP: u8 = 0x0a;
pub(super) const VERSION: u8 = 0x0b;
pub(super) const GETK: u8 = 0x0c;
pub(super) const GETKQ: u8 = 0x0d;
pub(super) const STAT: u8 = 0x10;
pub(super) const SETQ: u8 = 0x11;
pub(super) const DELETEQ: u8 = 0x14;
pub(super) const QUITQ: u8 = 0x17;
pub(super) const FLUSHQ: u8 = 0x18;
pub(super) const SASL_LIST: u8 = 0x20;
pub(super) const SASL_AUTH: u8 = 0x21;
pub(super) const SASL_STEP: u8 = 0x22;

/// Those of clients that have to log in first.
pub(super) const BEFORE_LOGIN: [u8; 5] = [SASL_LIST, SASL_AUTH, SASL_STEP, QUIT, QUITQ];
