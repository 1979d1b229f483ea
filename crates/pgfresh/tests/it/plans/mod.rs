//! Tests production plans: a server's statistics, and what tests get from them.

mod baseline;
mod candidates;
mod explain;
mod fidelity;
mod hostile;
mod import;
mod production;
mod recording;
mod redacted;
mod run;
mod solutions;
mod suggestions;
mod suite;
