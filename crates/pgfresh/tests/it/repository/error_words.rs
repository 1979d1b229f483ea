//! Checks that code doesn't make decisions based on the text of an error or a hint: it must use the code or
//! the remedy. The check finds searches and comparisons in variables named like an error's text, in all
//! languages in the repository.

use std::fs;
use std::path::Path;

/// Folders with code.
const FOLDERS: &[&str] = &["crates", "clients", "examples", "peers", "packaging"];
const LANGUAGES: &[&str] =
    &["rs", "py", "js", "mjs", "cjs", "ts", "mts", "go", "java", "rb", "php", "ex", "exs", "cs"];
/// Folders with third-party code.
const FOREIGN: &[&str] = &["node_modules", "target", "vendor", "_build", "deps", "bin", "obj"];

/// Names, or parts of names, for an error's text.
const NAMES: &[&str] = &[
    "cause",
    "detail",
    "err",
    "error",
    "exc",
    "exception",
    "failure",
    "hint",
    "message",
    "problem",
    "reason",
    "why",
];
/// Names, or parts of names, for an error's machine-readable properties.
const FOR_PROGRAMS: &[&str] = &["code", "kind", "remedy", "sqlstate", "state", "status"];
/// Methods that search in a string, in lower case and without `_` and `?`.
const METHODS: &[&str] = &[
    "contains",
    "endswith",
    "eqignoreascii",
    "eqignorecase",
    "equals",
    "find",
    "include",
    "includes",
    "indexof",
    "lastindexof",
    "match",
    "matches",
    "replace",
    "replaceall",
    "replacen",
    "rfind",
    "search",
    "splitonce",
    "startswith",
    "stripprefix",
    "stripsuffix",
];
/// Functions that search in a string argument.
const FUNCTIONS: &[&str] = &[
    "strings.Contains(",
    "strings.EqualFold(",
    "strings.HasPrefix(",
    "strings.HasSuffix(",
    "strings.Index(",
    "strings.Replace(",
    "re.match(",
    "re.search(",
    "re.sub(",
    "preg_match(",
    "str_contains(",
    "str_starts_with(",
    "String.contains?(",
    "String.starts_with?(",
    ".test(",
];

/// Files that search in error text, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/bench/src/events/document_store.rs", "shortens what MongoDB's driver says"),
    ("crates/bench/src/events/ferretdb.rs", "is a test"),
    ("crates/pgfresh/src/cli/error.rs", "rewords what clap says"),
    ("crates/pgfresh/src/settings/toml_file.rs", "rewords what serde says"),
    ("crates/pgfresh/src/lifecycle.rs", "prints a failure without its prefix"),
];

#[test]
fn no_code_decides_by_words_of_errors() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let found = violations(&root);
    let unexpected: Vec<_> = found
        .iter()
        .filter(|line| !ALLOWED.iter().any(|(file, _)| line.starts_with(&format!("{file}:"))))
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    for (file, _) in ALLOWED {
        assert!(found.iter().any(|line| line.starts_with(&format!("{file}:"))), "{file} needs no exception");
    }
}

/// Checks that decisions based on text are found in each language, and that nothing else is.
#[test]
fn planted_decisions_by_words_are_found() {
    let planted = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = planted.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let faults = [
        ("crates/a/src/a.rs", "fn f() {\n    self.hint.as_ref().is_some_and(|hint| hint.contains(word));\n}"),
        (
            "crates/a/src/b.rs",
            "if answer[\"error\"][\"hint\"]\n    .as_str()\n    .unwrap()\n    .starts_with(\"Close\") {}",
        ),
        ("crates/a/src/c.rs", "if failure.to_string() == \"gone\" {}"),
        ("clients/python/a.py", "if 'sessions' in str(error): pass"),
        ("clients/python/b.py", "hint = hint.replace(there, here)"),
        ("clients/python/c.py", "if re.search('open', str(exc.args)): pass"),
        ("clients/node/a.js", "if (error.message.includes('open')) retry();"),
        ("clients/node/b.mjs", "if (/open/.test(error.hint)) retry();"),
        ("clients/go/a.go", "if strings.Contains(err.Error(), \"open\") {}"),
        ("clients/java/A.java", "if (error.getMessage().contains(\"open\")) {}"),
        ("examples/ruby/a.rb", "retry if error.message.include?('open')"),
        ("examples/dotnet/A.cs", "if (exception.Message.StartsWith(\"open\")) {}"),
    ];
    for (name, text) in faults {
        write(name, text);
    }
    for (name, text) in [
        (
            "crates/a/src/fine.rs",
            "if failure.is(ErrorCode::InUse) || error.code == \"55006\" || text.contains(\"error\") {}",
        ),
        ("crates/a/src/tested.rs", "#[cfg(test)]\nmod tests { fn f() { assert!(error.contains(\"x\")); } }"),
        ("crates/a/tests/it.rs", "assert!(error.contains(\"x\"));"),
        ("clients/python/fine.py", "for message in messages: print(message)  # 'x' in message"),
        ("clients/node/fine.js", "if (error.code === \"ENOENT\") retry(error.cause);"),
        ("clients/go/fine_test.go", "if strings.Contains(err.Error(), \"open\") {}"),
        ("clients/node/node_modules/a.js", "if (error.message.includes('open')) retry();"),
    ] {
        write(name, text);
    }
    let found: Vec<_> = violations(planted.path());
    let files: Vec<_> = found.iter().map(|line| line.split(':').next().unwrap()).collect();
    let mut expected = faults.map(|(name, _)| name);
    expected.sort_unstable();
    assert_eq!(files, expected, "{found:#?}");
}

/// Returns each decision based on text as `file: the end of the expression`.
fn violations(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        collect(root, &root.join(folder), &mut files);
    }
    files.sort();
    files.dedup();
    let mut found = Vec::new();
    for name in files {
        let code = code(&fs::read_to_string(root.join(&name)).unwrap(), &name);
        found.extend(searches(&code).into_iter().map(|text| format!("{name}: {text}")));
    }
    found
}

/// Collects the files with code other than tests, by their path relative to `root`.
fn collect(root: &Path, folder: &Path, files: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let stem = name.split('.').next().unwrap_or_default();
        let is_test = ["test", "tests", "spec", "testing"].contains(&stem)
            || stem.ends_with("_test")
            || stem.ends_with("_spec")
            || stem.starts_with("test_")
            || name.contains(".test.");
        if is_test || FOREIGN.contains(&name.as_str()) || name.starts_with('.') || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, files);
        } else if path.extension().is_some_and(|end| LANGUAGES.iter().any(|language| end == *language)) {
            files.push(path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
        }
    }
}

/// Returns the code without comments and tests, with each call chain on one line.
fn code(text: &str, name: &str) -> String {
    let language = name.rsplit('.').next().unwrap_or_default();
    let text = if language == "rs" { text.split("\n#[cfg(test)]\nmod ").next().unwrap() } else { text };
    let text = if text.starts_with("#[cfg(test)]") { "" } else { text };
    let comment = if ["py", "rb", "ex", "exs"].contains(&language) { '#' } else { '/' };
    let mut code = String::new();
    for line in text.lines().map(str::trim) {
        let is_comment = line.starts_with(comment) || line.starts_with('*');
        let is_regex = line.starts_with('/') && !line.starts_with("//") && !line.starts_with("/*");
        if is_comment && !is_regex {
            continue;
        }
        if !line.starts_with('.') {
            code.push('\n');
        }
        code.push_str(line.split("  # ").next().unwrap());
    }
    code
}

/// Returns the searches and comparisons in error text.
fn searches(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices('.') {
        let rest = &code[at + 1..];
        let end = rest.find(|sign: char| !sign.is_alphanumeric() && sign != '_').unwrap_or(rest.len());
        let method = rest[..end].to_lowercase().replace('_', "");
        let is_call = rest[end..].starts_with('(') || rest[end..].starts_with("?(");
        if is_call && METHODS.contains(&method.as_str()) && is_error_text(chain_before(code, at)) {
            found.push(format!("{}.{}", chain_before(code, at), &rest[..end]));
        }
    }
    for sign in ["== \"", "!= \"", "== '"] {
        for (at, _) in code.match_indices(sign) {
            let before = code[..at].trim_end_matches(['=', '!', ' ']);
            let chain = chain_before(before, before.len());
            // Checking whether there is a text doesn't depend on what the text is.
            let is_empty = code[at + sign.len()..].starts_with(['"', '\'']);
            let is_type = before[..before.len() - chain.len()].ends_with("typeof ");
            if is_error_text(chain) && !is_empty && !is_type {
                found.push(format!("{chain} {sign}"));
            }
        }
    }
    for function in FUNCTIONS {
        for (at, _) in code.match_indices(function) {
            let rest = &code[at + function.len()..];
            let arguments = rest.lines().next().unwrap_or_default().split('{').next().unwrap_or_default();
            if arguments.split([',', ' ']).any(|argument| is_error_text(argument.trim_matches(['(', ')']))) {
                found.push(format!("{function}{arguments}"));
            }
        }
    }
    for sign in ["\" in ", "' in "] {
        for (at, _) in code.match_indices(sign) {
            let rest = code[at + sign.len()..].lines().next().unwrap_or_default();
            let text = rest.trim_start_matches("str(").split([' ', ':', ')']).next().unwrap_or_default();
            if is_error_text(text) {
                found.push(format!("in {text}"));
            }
        }
    }
    found
}

/// Returns the chain of names, calls and indices that ends before `at`.
fn chain_before(code: &str, at: usize) -> &str {
    let mut depth = 0_usize;
    let mut start = at;
    for (position, sign) in code[..at].char_indices().rev() {
        match sign {
            ')' | ']' => depth += 1,
            '(' | '[' if depth == 0 => break,
            '(' | '[' => depth -= 1,
            _ if depth > 0
                || sign.is_alphanumeric()
                || ['_', '.', '?', '!', '$', '@', ':'].contains(&sign) => {}
            _ => break,
        }
        start = position;
    }
    &code[start..at]
}

/// Whether a chain of names refers to an error's text.
fn is_error_text(chain: &str) -> bool {
    let mut words = vec![String::new()];
    for sign in chain.chars() {
        if !sign.is_alphanumeric() || sign.is_uppercase() {
            words.push(String::new());
        }
        words.last_mut().unwrap().extend(sign.to_lowercase().filter(|sign| sign.is_alphanumeric()));
    }
    let has = |names: &[&str]| words.iter().any(|word| names.contains(&word.as_str()));
    (has(NAMES) || chain.contains("last_words")) && !has(FOR_PROGRAMS)
}
