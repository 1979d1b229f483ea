//! Production's plans: statistics of a server, and what tests get from them.

mod import;
