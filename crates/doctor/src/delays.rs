//! How long processes waited for a processor: what other programs take from a suite, and no disk.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use sys::Roots;

/// Seconds that the threads of some processes and of all that they started waited for a processor.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    /// Threads that were there before: not the suite's.
    others: HashSet<PathBuf>,
    /// What was seen last of each thread, in nanoseconds.
    seen: HashMap<PathBuf, f64>,
}

impl Delays {
    /// From now on, what is below `process` and not there yet counts.
    pub(crate) fn begin(roots: &Roots, process: u32) -> Self {
        let others = threads(&roots.procfs, process).into_iter().collect();
        Self { others, seen: HashMap::new() }
    }

    /// Looks at `processes` and all below them.
    pub(crate) fn look(&mut self, roots: &Roots, processes: [u32; 2]) {
        for thread in processes.into_iter().flat_map(|process| threads(&roots.procfs, process)) {
            // Source: Linux, Documentation/scheduler/sched-stats.rst: /proc/PID/schedstat, second number.
            let text = fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
            let waited = text.split(' ').nth(1).and_then(|number| number.parse().ok());
            if let Some(waited) = waited.filter(|_| !self.others.contains(&thread)) {
                self.seen.insert(thread, waited);
            }
        }
    }

    /// Seconds of all threads together, as far as they were seen before their end.
    pub(crate) fn seconds(&self) -> f64 {
        self.seen.values().sum::<f64>() / 1e9
    }
}

/// The folders of all threads of a process and of its descendants.
fn threads(procfs: &Path, process: u32) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![process]);
    while let Some(process) = left.pop() {
        let tasks =
            fs::read_dir(procfs.join(process.to_string()).join("task")).into_iter().flatten().flatten();
        for task in tasks.map(|task| task.path()) {
            let children = fs::read_to_string(task.join("children")).unwrap_or_default();
            left.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
            found.push(task);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_new_count_and_those_below_them() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots { procfs: root.path().to_owned(), ..Roots::default() };
        let thread = |process: u32, thread: u32, children: &str, waited: u64| {
            let folder = root.path().join(format!("{process}/task/{thread}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("children"), children).unwrap();
            fs::write(folder.join("schedstat"), format!("7 {waited} 3\n")).unwrap();
        };
        thread(10, 10, "11 ", 5_000_000_000);
        thread(11, 11, "", 4_000_000_000);
        let mut delays = Delays::begin(&roots, 10);
        thread(10, 10, "11 12 ", 6_000_000_000);
        thread(12, 12, "", 500_000_000);
        thread(20, 20, "21", 250_000_000);
        thread(21, 21, "", 0);
        thread(21, 22, "", 125_000_000);
        delays.look(&roots, [10, 20]);
        delays.look(&roots, [10, 20]);
        assert!((delays.seconds() - 0.875).abs() < 1e-9, "{delays:?}");
    }
}
