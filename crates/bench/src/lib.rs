//! Workloads and the runner that times them in pairs.
