//! Changes the command line of a known test runner so that it runs a single test.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Placeholder for a single test.
pub(super) const TEST: &str = "{test}";
/// Options of test runners that don't take a value, so a path can follow them.
const FLAGS: [&str; 16] = [
    "-q",
    "-qq",
    "-v",
    "-vv",
    "-x",
    "-s",
    "-l",
    "-race",
    "-short",
    "-cover",
    "-failfast",
    "-json",
    "--test",
    "--verbose",
    "--quiet",
    "--exitfirst",
];

/// A command whose words contain [`TEST`].
#[derive(Debug, Clone)]
pub(super) struct TestCommand {
    words: Vec<OsString>,
    /// `None` if pgfresh doesn't recognize the test runner.
    runner: Option<TestRunner>,
}

/// A test runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TestRunner {
    Pytest,
    Go,
    NodeTest,
    Vitest,
    Jest,
    Maven,
    Cargo,
}

/// How a test runner selects a single test.
#[derive(Debug, PartialEq, Eq)]
struct Choice {
    /// The test, in the syntax of the test runner's option.
    pattern: String,
    /// The words that select the test.
    words: Vec<String>,
}

impl TestCommand {
    /// Finds the test runner in a command line. Returns `None` if no word contains the placeholder. `script` returns
    /// the text of a script in `package.json`.
    pub(super) fn read(words: &[OsString], script: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let has_placeholder = |word: &OsString| word.to_str().is_some_and(|word| word.contains(TEST));
        words.iter().any(has_placeholder).then(|| {
            let plain: Vec<_> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            let runner = TestRunner::find(&plain).or_else(|| {
                let script = script(script_name(&plain)?)?;
                TestRunner::find(&script.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            });
            Self { words: words.to_vec(), runner }
        })
    }

    /// Returns the command that runs all tests. Drops words that consist of the placeholder, and removes the
    /// placeholder from all others.
    pub(super) fn for_all(&self) -> Vec<OsString> {
        let words = self.words.iter().filter(|word| *word != TEST);
        words.map(|word| replaced(word, "")).collect()
    }

    /// Returns the command that runs one test. A word that consists of the placeholder replaces the command's paths
    /// and packages, because these would select further tests.
    pub(super) fn for_test(&self, test: &str) -> Vec<OsString> {
        let choice = self.runner.map_or_else(|| Choice::of_name(test), |runner| runner.choice(test));
        let has_own_word = self.words.iter().any(|word| word == TEST);
        let mut command: Vec<OsString> = Vec::new();
        for (at, word) in self.words.iter().enumerate() {
            if word == TEST {
                command.extend(choice.words.iter().map(OsString::from));
            } else if !(has_own_word && self.chooses_tests(at)) {
                command.push(replaced(word, &choice.pattern));
            }
        }
        if self.runner == Some(TestRunner::Cargo) {
            let end = command.iter().position(|word| word == "--").unwrap_or_else(|| {
                command.push("--".into());
                command.len() - 1
            });
            command.insert(end + 1, "--exact".into());
        }
        command
    }

    /// Returns true if the word at index `at` is a path or a package, and not the value of an option.
    fn chooses_tests(&self, at: usize) -> bool {
        let (Some(runner), Some(word)) = (self.runner, self.words[at].to_str()) else { return false };
        let before = at.checked_sub(1).and_then(|before| self.words[before].to_str()).unwrap_or_default();
        let is_value = before.starts_with('-') && !before.contains('=') && !FLAGS.contains(&before);
        if at == 0 || is_value || word.starts_with('-') {
            return false;
        }
        match runner {
            TestRunner::Go => {
                word == "." || word.starts_with("./") || word.starts_with("../") || word.ends_with("...")
            }
            TestRunner::Pytest | TestRunner::NodeTest | TestRunner::Vitest | TestRunner::Jest => {
                let path = word.split_once("::").map_or(word, |(path, _)| path);
                TestRunner::find(&[word.to_owned()]).is_none() && Path::new(path).exists()
            }
            TestRunner::Maven | TestRunner::Cargo => false,
        }
    }
}

impl Choice {
    /// Returns the choice for an unknown test runner.
    fn of_name(test: &str) -> Self {
        Self { pattern: test.to_owned(), words: vec![test.to_owned()] }
    }
}

impl TestRunner {
    /// Returns the first test runner that `words` name, or `None` if pgfresh doesn't recognize any.
    fn find(words: &[String]) -> Option<Self> {
        let of_word = |(at, word): (usize, &String)| {
            let name = Path::new(word).file_name().and_then(OsStr::to_str).unwrap_or_default();
            let mut rest = words[at + 1..].iter();
            match name {
                "pytest" | "py.test" => Some(Self::Pytest),
                "go" => rest.any(|word| word == "test").then_some(Self::Go),
                "cargo" => rest.any(|word| word == "test" || word == "nextest").then_some(Self::Cargo),
                "mvn" | "mvnw" | "mvnd" => Some(Self::Maven),
                "vitest" => Some(Self::Vitest),
                "jest" => Some(Self::Jest),
                "node" => rest.any(|word| word == "--test").then_some(Self::NodeTest),
                _ => None,
            }
        };
        words.iter().enumerate().find_map(of_word)
    }

    /// Returns the words that select a test. `test` is the name reported by a pgfresh client.
    fn choice(self, test: &str) -> Choice {
        match self {
            Self::Pytest | Self::Cargo => Choice::of_name(test),
            Self::Go => {
                let (package, name) = split_package(test);
                let parts: Vec<_> = name.split('/').map(|part| format!("^{}$", escaped(part))).collect();
                let pattern = parts.join("/");
                let package = (!package.is_empty()).then(|| package.to_owned());
                Choice { words: package.into_iter().chain([format!("-run={pattern}")]).collect(), pattern }
            }
            Self::NodeTest | Self::Vitest | Self::Jest => {
                let (file, name) = test.split_once(" > ").unwrap_or(("", test));
                // Node matches the pattern against the name of the innermost test or suite, while the other test
                // runners match it against all names.
                let innermost = name.rsplit(" > ").next().unwrap_or(name);
                let whole = name.replace(" > ", " ");
                let pattern =
                    format!("^{}$", escaped(if self == Self::NodeTest { innermost } else { &whole }));
                let file = (!file.is_empty()).then(|| file.to_owned());
                let words = match self {
                    Self::NodeTest => vec![format!("--test-name-pattern={pattern}")],
                    Self::Jest => vec![format!("--testNamePattern={pattern}"), "--runTestsByPath".to_owned()],
                    _ => vec![format!("--testNamePattern={pattern}")],
                };
                Choice { words: words.into_iter().chain(file).collect(), pattern }
            }
            Self::Maven => {
                let path = test.split(' ').next().unwrap_or(test);
                let (class, method) = path.rsplit_once('.').unwrap_or(("", path));
                let pattern = if class.is_empty() || method.starts_with(char::is_uppercase) {
                    path.to_owned()
                } else {
                    format!("{class}#{method}")
                };
                Choice { words: vec![format!("-Dtest={pattern}")], pattern }
            }
        }
    }
}

/// Splits the name `PACKAGE.TEST` of a Go test. The package is a path, so it can contain dots.
fn split_package(test: &str) -> (&str, &str) {
    let at = ["Test", "Fuzz", "Benchmark", "Example"]
        .iter()
        .filter_map(|word| test.find(&format!(".{word}")))
        .min();
    at.map_or(("", test), |at| (&test[..at], &test[at + 1..]))
}

/// Escapes the characters that have a special meaning in regular expressions.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        if r"\^$.|?*+()[]{}/".contains(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

/// Returns the name of the `package.json` script that `words` run. Returns `None` for other commands.
fn script_name(words: &[String]) -> Option<&str> {
    let program = Path::new(words.first()?).file_name()?.to_str()?;
    if !["npm", "pnpm", "yarn"].contains(&program) {
        return None;
    }
    let mut rest = words[1..].iter().map(String::as_str).filter(|word| !word.starts_with('-'));
    match rest.next()? {
        "run" | "run-script" => rest.next(),
        name => Some(name),
    }
}

/// Returns the text of a script in the working directory's `package.json`.
pub(super) fn npm_script(name: &str) -> Option<String> {
    let package: serde_json::Value = serde_json::from_slice(&std::fs::read("package.json").ok()?).ok()?;
    Some(package["scripts"][name].as_str()?.to_owned())
}

fn replaced(word: &OsString, text: &str) -> OsString {
    word.to_str().map_or_else(|| word.clone(), |plain| plain.replace(TEST, text).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn command(text: &str) -> TestCommand {
        let script = |name: &str| (name == "test").then(|| "node --test".to_owned());
        TestCommand::read(&words(text), script).unwrap()
    }

    fn for_test(line: &str, test: &str) -> String {
        let words = command(line).for_test(test);
        words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn placeholder_becomes_words_of_the_runner() {
        let node = "test/shop.test.js > cart > pays (twice)";
        for (line, test, expected) in [
            ("pytest -q {test}", "test_shop.py::test_pay", "pytest -q test_shop.py::test_pay"),
            ("uv run pytest {test} -x", "a.py::b", "uv run pytest a.py::b -x"),
            ("python3 -m pytest {test}", "a.py::b", "python3 -m pytest a.py::b"),
            ("go test {test}", "example.com/shop.TestPay", "go test example.com/shop -run=^TestPay$"),
            (
                "go test -count=1 -race ./... {test}",
                "x.y/z.v2.TestA/b.c",
                "go test -count=1 -race x.y/z.v2 -run=^TestA$/^b\\.c$",
            ),
            ("go test -run={test} ./...", "example.com/shop.TestPay", "go test -run=^TestPay$ ./..."),
            ("go test {test}", "TestPay", "go test -run=^TestPay$"),
            (
                "node --test {test}",
                node,
                "node --test --test-name-pattern=^pays \\(twice\\)$ test/shop.test.js",
            ),
            (
                "npm test -- {test}",
                node,
                "npm test -- --test-name-pattern=^pays \\(twice\\)$ test/shop.test.js",
            ),
            (
                "npx vitest run {test}",
                node,
                "npx vitest run --testNamePattern=^cart pays \\(twice\\)$ test/shop.test.js",
            ),
            (
                "npx jest {test}",
                node,
                "npx jest --testNamePattern=^cart pays \\(twice\\)$ --runTestsByPath test/shop.test.js",
            ),
            ("mvn -q test {test}", "shop.PayTest.pays", "mvn -q test -Dtest=shop.PayTest#pays"),
            ("./mvnw test {test}", "shop.PayTest.pays [1] a b", "./mvnw test -Dtest=shop.PayTest#pays"),
            ("mvn test -Dtest={test}", "shop.PayTest", "mvn test -Dtest=shop.PayTest"),
            ("cargo test {test}", "pay::works", "cargo test pay::works -- --exact"),
            (
                "cargo nextest run {test} -- --quiet",
                "pay::works",
                "cargo nextest run pay::works -- --exact --quiet",
            ),
            ("make check {test}", "any thing", "make check any thing"),
            ("npm run lint -- {test}", "any thing", "npm run lint -- any thing"),
            ("./suite --only={test}", "any thing", "./suite --only=any thing"),
        ] {
            assert_eq!(for_test(line, test), expected, "{line}");
        }
    }

    #[test]
    fn paths_give_way_to_one_test() {
        // This crate's folder is the working directory.
        for (text, expected) in [
            ("pytest src {test}", "pytest a.py::b"),
            ("pytest -q src/main.rs {test} -k pay", "pytest -q a.py::b -k pay"),
            ("pytest src/main.rs::test_pay {test}", "pytest a.py::b"),
            ("pytest -k src {test}", "pytest -k src a.py::b"),
            ("pytest nowhere {test}", "pytest nowhere a.py::b"),
            ("pytest src --deselect={test}", "pytest src --deselect=a.py::b"),
            ("make src {test}", "make src a.py::b"),
        ] {
            assert_eq!(for_test(text, "a.py::b"), expected, "{text}");
        }
    }

    #[test]
    fn run_of_all_tests_has_no_placeholder() {
        for (text, all) in [
            ("pytest tests {test}", "pytest tests"),
            ("go test -run={test} ./...", "go test -run= ./..."),
            ("pytest -q {test}", "pytest -q"),
        ] {
            assert_eq!(command(text).for_all(), words(all), "{text}");
        }
        assert!(TestCommand::read(&words("pytest tests"), |_| None).is_none());
    }
}
