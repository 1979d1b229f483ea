use std::fs;
use std::process::Command;

use clap::ValueEnum;

use super::credentials::Credentials;
use super::*;
use crate::settings::SIGNING_KEY;

/// One identifying file for each kind of project.
const MARKERS: [&str; 8] =
    ["pyproject.toml", "package.json", "go.mod", "pom.xml", "Cargo.toml", "Gemfile", "mix.exs", "Makefile"];

#[test]
fn ci_file_fills_all_placeholders_for_every_project() {
    for marker in MARKERS {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(marker), "").unwrap();
        let project = project::detect(folder.path());
        for &system in System::value_variants() {
            for (major, remote) in
                [None, Some(17)].into_iter().flat_map(|m| REMOTES.map(|remote| (m, remote)))
            {
                let inputs = vec!["a/**".to_owned(), "b.sql".to_owned()];
                let shared = remote.map(|remote| sharing(remote, major.map(|_| "main")));
                let text =
                    fill_in(&Values { system, job: Job::Tests, project: &project, major, inputs, shared });
                let left =
                    text.split('@').skip(1).find(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
                assert_eq!(left, None, "{system:?}: {text}");
                for part in project.dependencies.iter().chain([&project.command]) {
                    assert!(text.contains(part), "{system:?}: {part}: {text}");
                }
            }
        }
    }
}

/// A remote of each kind. `None` stands for a project without a remote.
const REMOTES: [Option<&str>; 7] = [
    None,
    Some("s3://bucket/prefix"),
    Some("gs://bucket"),
    Some("az://container"),
    Some("https://cache.example/templates"),
    Some("oci://registry.example:5000/team/templates"),
    Some("file:///srv/templates"),
];

/// Describes a remote that jobs on `branch` push templates to.
fn sharing(remote: &str, branch: Option<&str>) -> SharedTemplates {
    SharedTemplates::new(remote, branch.map(str::to_owned))
}

/// Returns the configuration for an empty folder.
fn plain(system: System) -> String {
    let folder = tempfile::tempdir().unwrap();
    let project = &project::detect(folder.path());
    fill_in(&Values { system, job: Job::Tests, project, major: None, inputs: Vec::new(), shared: None })
}

/// Returns the configuration for each kind of project, with a remote that jobs on `branch` push templates to.
fn printed(system: System, remote: &str, branch: Option<&str>) -> Vec<String> {
    let text = |marker| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(marker), "").unwrap();
        let project = project::detect(folder.path());
        let shared = Some(sharing(remote, branch));
        let inputs = vec!["a/**".to_owned(), "b.sql".to_owned(), "c.sql".to_owned()];
        fill_in(&Values { system, job: Job::Tests, project: &project, major: None, inputs, shared })
    };
    MARKERS.map(text).into()
}

/// Returns the lines that aren't comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim_start().starts_with(['#', '/']))
}

/// Returns the lines after `head` that are indented more deeply than `head`.
fn block<'a>(text: &'a str, head: &str) -> Vec<&'a str> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut lines = text.lines().skip_while(|line| line.trim() != head);
    let first = lines.next().unwrap_or_else(|| panic!("no {head}: {text}"));
    lines.take_while(|line| line.is_empty() || indent(line) > indent(first)).collect()
}

#[test]
fn without_a_remote_nothing_is_said_of_one() {
    for &system in System::value_variants() {
        let text = plain(system);
        for word in
            [SIGNING_KEY, "template build", "templates-", "_PUSH", "secrets", "withCredentials", "branch"]
        {
            assert!(code(&text).all(|line| !line.contains(word)), "{system:?}: {word}: {text}");
        }
    }
}

#[test]
fn remote_excludes_other_caches_and_lists_each_secret() {
    for (&system, remote) in System::value_variants()
        .iter()
        .flat_map(|system| REMOTES.into_iter().flatten().map(move |r| (system, r)))
    {
        for text in printed(system, remote, None) {
            for word in ["actions/cache", "Cache@2", "save_cache", "restore_cache", "  cache:"] {
                assert!(!text.contains(word), "{system:?}: {word}: {text}");
            }
            assert!(text.contains("PGFRESH_CACHE_PUSH"), "{system:?}: {text}");
            let secrets = Credentials::of(remote).secrets(system);
            for name in secrets.iter().chain([&SIGNING_KEY]) {
                // Some systems provide secrets without any configuration. For these, only the notes list the
                // secrets.
                let listed = !matches!(system, System::Gitlab | System::Circleci);
                let lines: Vec<_> = if listed { code(&text).collect() } else { text.lines().collect() };
                assert!(lines.iter().any(|line| line.contains(name)), "{system:?}: {name}: {text}");
            }
        }
    }
}

/// Checks that steps with a write secret run only on the pushing branch, not on other branches or in pull requests.
/// Since a pull request can change the configuration file, the CI system itself must protect these secrets, too
/// (see `holders`).
#[test]
fn write_secrets_are_limited_to_pushing_branch() {
    for remote in REMOTES.into_iter().flatten() {
        for text in printed(System::Woodpecker, remote, Some("trunk")) {
            let all = block(&text, "- name: test").join("\n");
            assert!(all.contains("exclude: \"trunk\"") && !all.contains("WRITE_"), "{text}");
            let push = block(&text, "- name: test-and-push").join("\n");
            assert!(
                push.contains("branch: \"trunk\"") && push.contains("WRITE_PGFRESH_SIGNING_KEY"),
                "{text}"
            );
            assert!(!push.contains("pull_request") && !push.contains("READ_"), "{text}");
        }
        for text in printed(System::Buildkite, remote, Some("trunk")) {
            let all = block(&text, "- label: test").join("\n");
            assert!(all.contains("if: build.branch != \"trunk\" ||") && !all.contains("WRITE_"), "{text}");
            let push = block(&text, "- label: test and push").join("\n");
            assert!(push.contains("if: build.branch == \"trunk\" &&") && !push.contains("READ_"), "{text}");
            assert!(push.contains("PGFRESH_SIGNING_KEY: WRITE_PGFRESH_SIGNING_KEY"), "{text}");
        }
        for text in printed(System::Circleci, remote, Some("trunk")) {
            let contexts: Vec<_> = code(&text).filter(|line| line.contains("context:")).collect();
            assert_eq!(contexts, ["          context: templates"], "{text}");
            assert!(text.contains("only: \"trunk\"") && text.contains("ignore: \"trunk\""), "{text}");
        }
        for text in printed(System::Jenkins, remote, Some("trunk")) {
            let branch = block(&text, "if (env.BRANCH_NAME == 'trunk') {").join("\n");
            assert!(branch.contains(SIGNING_KEY), "{text}");
            assert_eq!(code(&text).filter(|line| line.contains(SIGNING_KEY)).count(), 1, "{text}");
        }
        for (system, choice) in [
            (System::Github, "environment: ${{ github.ref == 'refs/heads/trunk' && 'templates' || '' }}"),
            (
                System::Azure,
                "iif(eq(variables['Build.SourceBranch'], 'refs/heads/trunk'), 'templates-write', ",
            ),
            (System::Gitlab, "name: templates/$CI_COMMIT_REF_PROTECTED"),
        ] {
            for text in printed(system, remote, Some("trunk")) {
                assert!(code(&text).any(|line| line.contains(choice)), "{system:?}: {text}");
                // In systems that grant secrets to individual steps, the test step must not get any.
                let tests = code(&text).filter(|line| line.contains("pgfresh run"));
                assert!(tests.into_iter().all(|line| !line.contains("secrets.")), "{text}");
                assert!(!code(&text).any(|line| line.contains("CACHE_PUSH")), "{text}");
            }
        }
    }
}

#[test]
fn only_file_remotes_require_a_mounted_directory() {
    for (&system, remote) in System::value_variants()
        .iter()
        .flat_map(|system| REMOTES.into_iter().flatten().map(move |remote| (system, remote)))
    {
        for text in printed(system, remote, Some("main")) {
            let said = format!("{remote}: mount the directory on each runner, ");
            let lines = text.lines().filter(|line| line.contains("mount the directory"));
            let lines: Vec<_> = lines.map(|line| line.contains(&said)).collect();
            assert_eq!(lines, [true].repeat(usize::from(remote.starts_with("file://"))), "{text}");
        }
    }
}

#[test]
fn service_tests_follow_a_place_for_migrations() {
    for &system in System::value_variants() {
        for text in printed(system, "s3://bucket", None).into_iter().chain([plain(system)]) {
            let (mut lines, mut places) = (text.lines().map(str::trim), 0);
            while lines.any(|line| line.ends_with("# The database is empty: run your migrations here.")) {
                let test = lines.next().unwrap_or_default();
                assert!(!test.contains("pgfresh run"), "{system:?}: {text}");
                assert!(
                    text.contains(&format!(
                        "pgfresh run -- {}",
                        test.trim_start_matches("- ")
                            .trim_start_matches("run: ")
                            .trim_start_matches("script: ")
                    )),
                    "{system:?}: {test}"
                );
                places += 1;
            }
            assert_eq!(places, 1, "{system:?}: {text}");
        }
    }
}

/// Runs the commands that log in to `remote`, then returns the variables whose names contain `word`.
fn after_login(system: System, remote: &str, word: &str, variables: [(&str, &str); 2]) -> Vec<String> {
    let script = format!("{}\nenv", sharing(remote, Some("main")).login(system).join("\n"));
    let run = Command::new("bash").args(["-euc", &script]).env_clear().envs(variables).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    let mut left: Vec<_> = String::from_utf8(run.stdout)
        .unwrap()
        .lines()
        .filter(|line| line.contains(word))
        .map(str::to_owned)
        .collect();
    left.sort();
    left
}

#[test]
fn public_store_is_read_without_secrets_remote_on() {
    let left = |remote, word, variables| after_login(System::Github, remote, word, variables);
    let aws = |id| left("s3://bucket", "SKIP", [("AWS_ACCESS_KEY_ID", id), ("AWS_SECRET_ACCESS_KEY", id)]);
    assert_eq!(
        (aws("").join(""), aws("key").join("")),
        ("AWS_SKIP_SIGNATURE=true".to_owned(), String::new())
    );
    let azure = |token| left("az://container", "SKIP", [("AZURE_STORAGE_SAS_TOKEN", token), ("HOME", "/")]);
    assert_eq!(
        (azure("").join(""), azure("sig=x").join("")),
        ("AZURE_SKIP_SIGNATURE=true".to_owned(), String::new())
    );
    let google = |key| left("gs://bucket", "GOOGLE", [("GOOGLE_SERVICE_ACCOUNT_KEY", key), ("HOME", "/")]);
    assert_eq!(google(""), ["GOOGLE_SKIP_SIGNATURE=true"]);
    assert_eq!(google("{}"), ["GOOGLE_SERVICE_ACCOUNT_KEY={}"]);
    for system in [System::Github, System::Azure] {
        let url = |url| {
            after_login(
                system,
                "https://host/x",
                "REMOTE",
                [("PGFRESH_CACHE_REMOTE", url), ("PATH", "/usr/bin:/bin")],
            )
        };
        assert_eq!(url("https://me:word@host/x"), ["PGFRESH_CACHE_REMOTE=https://me:word@host/x"]);
        for missing in ["", "$(PGFRESH_CACHE_REMOTE)"] {
            assert_eq!(url(missing), [""; 0], "{system:?}");
        }
    }
}

#[test]
fn login_matches_docker_format_and_requires_password() {
    for system in [System::Circleci, System::Woodpecker] {
        let shared = sharing("oci://registry.example:5000/a/b", Some("main"));
        for (password, expected) in
            [("pass\"word", r#"{"auths":{"registry.example:5000":{"auth":"bWU6cGFzcyJ3b3Jk"}}}"#), ("", "")]
        {
            let script = format!(
                "set -eu\n{}\ncat \"$REGISTRY_AUTH_FILE\"; rm \"$REGISTRY_AUTH_FILE\"",
                shared.login(system).join("\n")
            );
            let run = Command::new("sh")
                .args(["-c", &script])
                .env("REGISTRY_USER", "me")
                .env("REGISTRY_PASSWORD", password)
                .output()
                .unwrap();
            assert!(run.status.success(), "{run:?}");
            assert_eq!(String::from_utf8_lossy(&run.stdout), expected);
        }
    }
}

#[test]
fn ci_installs_pgfresh_from_verified_release_only() {
    for &system in System::value_variants() {
        let text = plain(system);
        assert!(text.contains(RELEASE) && text.contains("sha256sum -c -"), "{system:?}: {text}");
        for line in text.lines().filter(|line| line.contains(" install ")) {
            assert!(!line.contains("pgfresh"), "{system:?}: {line}");
        }
    }
}

/// Returns the configuration for a project whose folder contains an empty file named `marker`.
fn cached(system: System, marker: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(marker), "").unwrap();
    let project = &project::detect(folder.path());
    fill_in(&Values {
        system,
        job: Job::Tests,
        project,
        major: Some(17),
        inputs: vec!["a.sql".to_owned()],
        shared: None,
    })
}

#[test]
fn cache_key_changes_with_the_installed_programs() {
    for (system, digest) in [
        (System::Github, "${{ steps.pgfresh.outputs.programs }}"),
        (System::Azure, "$(PGFRESH_PROGRAMS)"),
        (System::Circleci, "{{ checksum \"/tmp/pgfresh-programs\" }}"),
    ] {
        let text = cached(system, "go.mod");
        let keys: Vec<_> = code(&text).filter(|line| line.contains("pgfresh-17")).collect();
        assert!(keys.len() >= 2 && keys.iter().all(|key| key.contains(digest)), "{system:?}: {text}");
        // The digest exists only after the installation.
        let (installed, used) = (text.find(install::PROGRAMS).unwrap(), text.find(digest).unwrap());
        assert!(text.find("tar -xzf").unwrap() < installed && installed < used, "{system:?}: {text}");
    }
}

#[test]
fn cache_key_of_gitlab_has_the_migrations() {
    let folder = tempfile::tempdir().unwrap();
    let project = &project::detect(folder.path());
    for (inputs, key) in [
        (&["compose.yml", "migrations/**"][..], "'pgfresh.toml', 'migrations/**'"),
        (&["compose.yml"], "'pgfresh.toml', 'compose.yml'"),
        (&[], "'pgfresh.toml'"),
    ] {
        let inputs = inputs.iter().map(ToString::to_string).collect();
        let values =
            Values { system: System::Gitlab, job: Job::Tests, project, major: None, inputs, shared: None };
        let text = fill_in(&values);
        assert!(text.contains(&format!("files: [{key}]\n")), "{text}");
    }
}

#[test]
fn python_and_node_jobs_install_the_client() {
    for &system in System::value_variants() {
        for (marker, install) in [
            ("uv.lock", "uv pip install --no-deps pgfresh-*x86_64.whl"),
            ("requirements.txt", "pip install --no-deps pgfresh-*x86_64.whl"),
            ("package.json", "-C node_modules/pgfresh --strip-components 1"),
        ] {
            let markers = if marker == "uv.lock" { vec!["pyproject.toml", marker] } else { vec![marker] };
            let folder = tempfile::tempdir().unwrap();
            for name in markers {
                fs::write(folder.path().join(name), "").unwrap();
            }
            let project = &project::detect(folder.path());
            let text = fill_in(&Values {
                system,
                job: Job::Tests,
                project,
                major: None,
                inputs: Vec::new(),
                shared: None,
            });
            let (client, run) = (text.find(install), text.find("pgfresh run --"));
            assert!(client.is_some() && client < run, "{system:?} {marker}: {text}");
            assert!(!text.contains("the pgfresh client"), "{system:?} {marker}: {text}");
        }
        assert!(cached(system, "go.mod").contains("the pgfresh client"), "{system:?}");
    }
}

/// A release has a wheel for each system and processor. CI jobs need the wheel for Linux on x86-64.
#[test]
fn python_jobs_fetch_the_wheel_for_linux() {
    let wheels = [
        "manylinux2014_x86_64.manylinux_2_17_x86_64",
        "manylinux2014_aarch64.manylinux_2_17_aarch64",
        "macosx_13_0_x86_64",
        "macosx_13_0_arm64",
    ];
    let folder = tempfile::tempdir().unwrap();
    let sums = folder.path().join("SHA256SUMS");
    let lines =
        wheels.map(|tag| format!("digest  pgfresh-{}-py3-none-{tag}.whl\n", env!("CARGO_PKG_VERSION")));
    fs::write(&sums, lines.concat()).unwrap();
    for &system in System::value_variants() {
        // Some systems replace "$$" with "$" in a command.
        let text = cached(system, "pyproject.toml").replace("$$", "$");
        let patterns = text.split('\'').filter(|word| word.ends_with("whl$"));
        let mut count = 0;
        for pattern in patterns {
            let found = Command::new("grep").arg(pattern).arg(&sums).output().unwrap();
            assert_eq!(String::from_utf8(found.stdout).unwrap(), lines[0], "{system:?} {pattern}");
            count += 1;
        }
        assert!(count > 0, "{system:?}: {text}");
    }
}

/// Returns the configuration that checks migrations.
fn migrations(system: System, remote: Option<&str>) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("pyproject.toml"), "").unwrap();
    let project = &project::detect(folder.path());
    let shared = remote.map(|remote| sharing(remote, None));
    let inputs = vec!["a.sql".to_owned()];
    fill_in(&Values { system, job: Job::Migrations, project, major: Some(17), inputs, shared })
}

#[test]
fn migration_jobs_separate_check_and_comment() {
    for remote in REMOTES {
        let text = migrations(System::Github, remote);
        let (check, comment) = (block(&text, "check:").join("\n"), block(&text, "comment:").join("\n"));
        assert!(check.contains("pgfresh migrate check") && check.contains("fetch-depth: 0"), "{text}");
        assert!(!check.contains("write") && comment.contains("pull-requests: write"), "{text}");
        assert!(!comment.contains("checkout") && !comment.contains("secrets."), "{text}");
        let text = migrations(System::Gitlab, remote);
        let (check, comment) =
            (block(&text, "migrations:").join("\n"), block(&text, "migrations-comment:").join("\n"));
        assert!(check.contains("pgfresh migrate check") && !check.contains("COMMENT_TOKEN"), "{text}");
        assert!(comment.contains("COMMENT_TOKEN") && comment.contains("GIT_STRATEGY: none"), "{text}");
        for system in [System::Github, System::Gitlab] {
            let text = migrations(system, remote);
            let left =
                text.split('@').skip(1).find(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
            assert_eq!(left, None, "{system:?}: {text}");
        }
    }
}

/// Returns the configuration with the cache of a project whose template reads `inputs`.
fn with_inputs(system: System, inputs: &[String]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let project = &project::detect(folder.path());
    let inputs = inputs.to_vec();
    fill_in(&Values { system, job: Job::Tests, project, major: Some(17), inputs, shared: None })
}

/// Parses YAML and returns all keys and values.
fn scalars(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for event in saphyr_parser::Parser::new_from_str(text) {
        if let (saphyr_parser::Event::Scalar(value, ..), _) = event.unwrap_or_else(|e| panic!("{e}: {text}"))
        {
            found.push(value.into_owned());
        }
    }
    found
}

/// Parses string literals of GitHub's expressions, separated by commas.
fn literals(text: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(start) = rest.strip_prefix('\'') {
        let (mut value, mut chars) = (String::new(), start.chars());
        loop {
            match chars.next().unwrap() {
                '\'' if chars.as_str().starts_with('\'') => value.extend(chars.next()),
                '\'' => break,
                other => value.push(other),
            }
        }
        found.push(value);
        rest = chars.as_str().trim_start_matches(", ");
    }
    assert_eq!(rest, "", "{text}");
    found
}

/// Reads the input names back from a configuration, as the CI system does.
fn names_in(system: System, text: &str) -> Vec<String> {
    if matches!(system, System::Jenkins | System::Woodpecker | System::Buildkite) {
        return vec!["pgfresh.toml".to_owned()];
    }
    let scalars = scalars(text);
    let with =
        |part: &str| scalars.iter().find(|s| s.contains(part)).unwrap_or_else(|| panic!("{part}: {text}"));
    match system {
        System::Github => {
            let (_, arguments) = with("hashFiles(").split_once("hashFiles(").unwrap();
            literals(arguments.strip_suffix(") }}").unwrap())
        }
        System::Gitlab => {
            let files = scalars.iter().skip_while(|name| *name != "files").skip(1);
            files.take_while(|name| *name != "paths").cloned().collect()
        }
        System::Azure => {
            with("\" | pgfresh.toml").rsplit(" | ").next().unwrap().split(", ").map(str::to_owned).collect()
        }
        System::Circleci => {
            let command = with("git ls-files").replace("\\<<", "<<");
            let words = shlex::split(command.strip_suffix(" >/tmp/pgfresh-inputs").unwrap()).expect(&command);
            words.iter().filter_map(|word| word.strip_prefix(":(glob)")).map(str::to_owned).collect()
        }
        _ => unreachable!(),
    }
}

proptest::proptest! {
    #[test]
    fn each_input_name_survives_all_quoting(
        names in proptest::collection::vec("['\"# :{}$\\\\@<>|,!&*%`a-z.é✓\u{2028}\u{feff}\n-]{1,12}|[^/\0]{1,8}|@[A-Z]{3,6}@", 1..4),
    ) {
        for &system in System::value_variants() {
            let inputs: Vec<_> = names.iter().filter(|name| names::check(system, std::slice::from_ref(name)).is_ok()).cloned().collect();
            let text = with_inputs(system, &inputs);
            let found = names_in(system, &text);
            proptest::prop_assert_eq!(&found[0], "pgfresh.toml");
            if matches!(system, System::Github | System::Azure | System::Circleci) {
                proptest::prop_assert_eq!(&found[1..], &inputs, "{}", text);
            } else {
                proptest::prop_assert!(found[1..].iter().all(|name| inputs.contains(name)), "{}", text);
                proptest::prop_assert_eq!(found.len() > 1, matches!(system, System::Gitlab) && !inputs.is_empty());
            }
        }
    }
}

#[test]
fn inexpressible_names_are_rejected() {
    for (system, name) in [
        (System::Github, "a\nb.sql"),
        (System::Github, "#a.sql"),
        (System::Github, "a.sql "),
        (System::Azure, "a|b.sql"),
        (System::Azure, "a,b.sql"),
        (System::Azure, "$(HOME).sql"),
        (System::Gitlab, "$HOME.sql"),
        (System::Circleci, "a\tb.sql"),
    ] {
        let text = names::check(system, &[name.to_owned()]).unwrap_err().to_string();
        assert!(text.contains(&format!("cannot write the input {name:?}")), "{text}");
        assert!(names::check(system, &["a'b #: {{x}}.sql".to_owned()]).is_ok(), "{system:?}");
    }
}
