//! Lost connections: a fault equals a network that breaks at the same message.

use std::io::ErrorKind;
use std::time::Duration;

use serde_json::json;

use super::network::{Network, Place};
use super::script::{Exchange, run, simple, synced};
use super::side::{Faulty, Outcome, Real, shown_rows};
use super::{ISOLATIONS, SCHEMA};
use crate::common::connection::{Address, Connection};
use crate::common::gateway::Gateway;
use crate::common::random::Random;
use crate::common::{depth, on_every_major, wait_until};
