//! File systems that only one process tree sees, and that end with it.

use std::process::Command;

use super::{Outcome, Scene, User, finish, ground, is_root};

/// Returns a scene in which root can mount. For other users, prints that it skips the test, and returns `None`.
pub(crate) fn scene() -> Option<Scene> {
    if is_root() {
        return Some(Scene::with_empty_cache(User::Ourselves));
    }
    eprintln!("Only root can mount: not tested.");
    None
}

/// Runs pgfresh with `arguments` after the shell lines in `mount`, in a new mount namespace. The output ends with the files of
/// pgfresh below `$MOUNTED` that still exist two seconds later.
pub(crate) fn run(scene: &Scene, mount: &str, arguments: &[&str]) -> Outcome {
    let script = format!(
        "{mount}
        code=0; \"$@\" || code=$?
        left() {{ (cd \"$MOUNTED\" && find . -maxdepth 3 '(' -path './*pgfresh-*/*' -o -name '*.staging' ')' -printf 'left: %P\\n'); }}
        for _ in $(seq 200); do [ -n \"$(left)\" ] || break; sleep 0.01; done
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
