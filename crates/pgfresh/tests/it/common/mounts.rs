//! File systems that only one process tree can see, and that end with it.

use std::process::Command;

use super::{Outcome, Scene, User, as_root, finish, ground};

/// Returns a scene on a disk, so that root can mount other file systems over RAM. For other users, prints that the test
/// is skipped, and returns `None`.
pub(crate) fn scene() -> Option<Scene> {
    as_root("mount").then(|| Scene::on_disk(User::Ourselves))
}

/// Runs pgfresh with `arguments` after the shell commands `mount`, in a new mount namespace. The output ends with the
/// pgfresh files below `$MOUNTED` that pgfresh doesn't remove.
pub(crate) fn run(scene: &Scene, mount: &str, arguments: &[&str]) -> Outcome {
    let script = format!(
        "{mount}
        code=0; \"$@\" || code=$?
        left() {{ (cd \"$MOUNTED\" && find . -maxdepth 3 '(' -path './*pgfresh-*/*' -o -name '*.staging' ')' -printf 'left: %P\\n'); }}
        for _ in $(seq 60000); do [ -n \"$(left)\" ] || break; sleep 0.01; done
        left
        exit $code"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "sh", "-euc", &script, "sh"]);
    command.arg(ground::program()).args(arguments);
    scene.set(&mut command);
    command.env("MOUNTED", scene.directory.join("mounted"));
    std::fs::create_dir_all(scene.directory.join("mounted")).unwrap();
    finish(command)
}
