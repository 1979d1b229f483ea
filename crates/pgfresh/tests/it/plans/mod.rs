//! Production's plans: statistics of a server, and what tests get from them.

mod candidates;
mod explain;
mod fidelity;
mod hostile;
mod import;
mod production;
