//! Checks house rules that a program can check: sizes, the direction of dependencies, the map in ARCHITECTURE.md,
//! `unsafe` and printing. Each check lists every violation as `file:line: what is wrong`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use toml::de::DeTable;

/// Maximum number of lines in a file.
const FILE_LINES: usize = 600;

/// Maximum number of lines in a function, from its signature to its closing brace.
const FUNCTION_LINES: usize = 60;

/// Macros that write to the terminal. Only the binary and tests may use them.
const PRINTING: &[&str] = &["print", "println", "eprint", "eprintln", "dbg"];

/// For each crate, the workspace crates that it is allowed to depend on, in order.
const ARROWS: &[(&str, &[&str])] = &[
    ("contract", &[]),
    ("pgwire", &[]),
    ("sys", &[]),
    ("storage", &["sys"]),
    ("server", &["pgwire", "sys", "storage"]),
    ("template", &["sys", "storage", "server"]),
    ("remote", &["sys", "storage", "template"]),
    ("lease", &["pgwire", "sys", "storage", "server", "template"]),
    ("gateway", &["contract", "pgwire", "sys", "storage", "server", "template", "lease"]),
    ("api", &["contract", "sys", "server", "lease", "gateway", "report", "diff"]),
    ("report", &[]),
    ("diff", &["contract", "server", "report"]),
    ("bench", &["pgwire", "sys", "storage", "server", "template", "lease", "gateway", "api", "report"]),
    ("profile", &["pgwire", "sys", "server", "report"]),
    ("plans", &["pgwire", "sys", "storage", "server", "template", "report"]),
    ("migrations", &["pgwire", "sys", "storage", "server", "template", "report", "plans"]),
    ("trials", &["contract", "pgwire", "server", "report"]),
    ("doctor", &["sys", "storage", "server", "template", "report", "profile"]),
    (
        "pgfresh",
        &[
            "contract",
            "pgwire",
            "sys",
            "storage",
            "server",
            "template",
            "lease",
            "gateway",
            "api",
            "report",
            "diff",
            "bench",
            "doctor",
            "profile",
            "plans",
            "migrations",
            "trials",
            "remote",
        ],
    ),
];

#[test]
fn files_are_short() {
    report(&long_files(&root()));
}

#[test]
fn functions_fit_on_a_screen() {
    report(&long_functions(&root()));
}

#[test]
fn dependencies_follow_the_arrows() {
    report(&wrong_arrows(&root()));
}

#[test]
fn the_map_names_every_crate_and_no_other() {
    report(&map_errors(&root()));
}

#[test]
fn one_type_name_means_one_thing() {
    report(&double_names(&root()));
}

#[test]
fn only_sys_is_unsafe() {
    report(&unsafe_code(&root()));
}

#[test]
fn only_the_binary_prints() {
    report(&printing(&root()));
}

/// Checks that each check finds violations.
#[test]
fn every_check_finds_what_is_planted() {
    let planted = tempfile::tempdir().unwrap();
    let root = planted.path();
    let body = "    let _ = ();\n".repeat(FUNCTION_LINES - 1);
    let source = format!(
        "fn brief() {{\n{}}}\n\
         mod inner {{ impl T {{ fn outer() {{\n    fn nested() {{\n{body}}}\n}}}} }}\n\
         property! {{ #[test] fn generated(x in 0..9) {{\n{body}}} }}\n\
         fn shout() {{ assert!(unsafe {{ true }}, \"unsafe\"); vec![println!()]; }}\n\
         #[cfg(test)] mod tests {{ fn f() {{ println!(); }} }}\n",
        &body[16..],
    );
    write(root, "crates/storage/src/lib.rs", &source);
    write(root, "clients/rust/tests/long.rs", &"//\n".repeat(FILE_LINES + 1));
    write(
        root,
        "crates/storage/Cargo.toml",
        "[dependencies]\npgfresh-sys.workspace = true\n[target.x.dev-dependencies]\n\
         y = { package = \"pgfresh-server\", path = \"\" }\n",
    );
    write(root, "crates/stray/Cargo.toml", "");
    write(
        root,
        "crates/stray/src/lib.rs",
        "mod inner { pub struct Twice; struct Private; }\npub struct Once;\n",
    );
    write(root, "crates/storage/src/names.rs", "pub enum Twice {}\nstruct Once;\nstruct Private;\n");
    write(root, "ARCHITECTURE.md", "`storage`\ncrates/absent.\n");

    assert_eq!(long_files(root), ["clients/rust/tests/long.rs:601: 601 lines, 600 are allowed"]);
    assert_eq!(
        long_functions(root),
        [
            "crates/storage/src/lib.rs:61: fn outer has 63 lines, 60 are allowed",
            "crates/storage/src/lib.rs:62: fn nested has 61 lines, 60 are allowed",
            "crates/storage/src/lib.rs:124: fn generated has 61 lines, 60 are allowed",
        ]
    );
    assert_eq!(
        wrong_arrows(root),
        [
            "crates/storage/Cargo.toml:4: storage must not depend on server",
            "crates/stray/Cargo.toml:1: stray has no place in the table of tests/it/repository/house.rs",
        ]
    );
    assert_eq!(
        map_errors(root),
        ["ARCHITECTURE.md:1: crates/stray is missing", "ARCHITECTURE.md:2: crates/absent does not exist"]
    );
    assert_eq!(
        double_names(root),
        ["crates/stray/src/lib.rs:1: Twice is the name of a type in crates/storage/src/names.rs, too"]
    );
    assert_eq!(unsafe_code(root), ["crates/storage/src/lib.rs:185: unsafe outside crates/sys"]);
    assert_eq!(printing(root), ["crates/storage/src/lib.rs:185: println! outside crates/pgfresh"]);
}

fn long_files(root: &Path) -> Vec<String> {
    let measured = sources(root).into_iter().map(|file| (file.text.lines().count(), file));
    measured
        .filter(|(lines, _)| *lines > FILE_LINES)
        .map(|(lines, file)| format!("{}:{lines}: {lines} lines, {FILE_LINES} are allowed", file.name))
        .collect()
}

fn long_functions(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for file in sources(root) {
        let mut functions = Functions::default();
        functions.visit_file(&file.syntax());
        found.extend(functions.0.into_iter().filter(|function| function.lines() > FUNCTION_LINES).map(
            |function| {
                let (line, lines) = (function.first, function.lines());
                format!(
                    "{}:{line}: fn {} has {lines} lines, {FUNCTION_LINES} are allowed",
                    file.name, function.name
                )
            },
        ));
    }
    found
}

fn wrong_arrows(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for name in crates(root) {
        let manifest = format!("crates/{name}/Cargo.toml");
        let text = read(&root.join(&manifest));
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            found.push(format!(
                "{manifest}:1: {name} has no place in the table of tests/it/repository/house.rs"
            ));
            continue;
        };
        let document = DeTable::parse(&text).unwrap_or_else(|error| panic!("{manifest}: {error}"));
        let mut wrong = Vec::new();
        dependencies(document.get_ref(), &mut |package, at| {
            let on = package.strip_prefix("pgfresh-").unwrap_or(package);
            let ours = ARROWS.iter().any(|(known, _)| *known == on);
            if ours && !allowed.contains(&on) {
                let line = text[..at].lines().count().max(1);
                wrong.push(format!("{manifest}:{line}: {name} must not depend on {on}"));
            }
        });
        found.append(&mut wrong);
    }
    found
}

/// Calls `each` with the package and position of every dependency in `table` and in its target-specific tables.
fn dependencies(table: &DeTable<'_>, each: &mut impl FnMut(&str, usize)) {
    for (section, item) in table {
        let Some(inner) = item.get_ref().as_table() else { continue };
        match section.get_ref().as_ref() {
            "dependencies" | "dev-dependencies" | "build-dependencies" => {
                for (name, value) in inner {
                    let package =
                        value.get_ref().get("package").and_then(|package| package.get_ref().as_str());
                    each(package.unwrap_or(name.get_ref()), name.span().end);
                }
            }
            "target" => {
                for (_, target) in inner {
                    dependencies(target.get_ref().as_table().expect("a target is a table"), each);
                }
            }
            _ => {}
        }
    }
}

fn map_errors(root: &Path) -> Vec<String> {
    const MAP: &str = "ARCHITECTURE.md";
    let Ok(text) = fs::read_to_string(root.join(MAP)) else {
        return vec![format!("{MAP}:1: could not be read")];
    };
    let named: Vec<(usize, &str)> = (1..)
        .zip(text.lines())
        .flat_map(|(line, words)| words.split("crates/").skip(1).map(move |rest| (line, leading_name(rest))))
        .filter(|(_, name)| !name.is_empty())
        .collect();
    let present = crates(root);
    let missing = present.iter().filter(|name| {
        !text.contains(&format!("`{name}`")) && !named.iter().any(|(_, mentioned)| mentioned == name)
    });
    let absent = named.iter().filter(|(_, name)| !present.iter().any(|folder| folder == name));
    missing
        .map(|name| format!("{MAP}:1: crates/{name} is missing"))
        .chain(absent.map(|(line, name)| format!("{MAP}:{line}: crates/{name} does not exist")))
        .collect()
}

fn leading_name(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'));
    &text[..end.unwrap_or(text.len())]
}

/// Returns the names of public types that more than one crate defines.
fn double_names(root: &Path) -> Vec<String> {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut found = Vec::new();
    for file in sources(root).iter().filter(|file| file.name.contains("/src/")) {
        for (name, at) in public_types(&file.syntax().items) {
            let krate = file.name.split('/').nth(1).unwrap_or_default();
            match known.get(&name) {
                Some(other) if !other.starts_with(&format!("crates/{krate}/")) => {
                    found.push(format!("{}:{at}: {name} is the name of a type in {other}, too", file.name));
                }
                Some(_) => {}
                None => drop(known.insert(name, file.name.clone())),
            }
        }
    }
    found
}

/// Returns the name and line of each public type, including types in inline modules.
fn public_types(items: &[syn::Item]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for item in items {
        let (visibility, name) = match item {
            syn::Item::Struct(item) => (&item.vis, &item.ident),
            syn::Item::Enum(item) => (&item.vis, &item.ident),
            syn::Item::Trait(item) => (&item.vis, &item.ident),
            syn::Item::Type(item) => (&item.vis, &item.ident),
            syn::Item::Mod(item) => {
                let inner = item.content.as_ref().map_or(&[][..], |(_, items)| items);
                found.extend(public_types(inner));
                continue;
            }
            _ => continue,
        };
        if matches!(visibility, syn::Visibility::Public(_)) {
            found.push((name.to_string(), line(name.span())));
        }
    }
    found
}

/// Returns every `unsafe` outside `sys`, including tests and macros.
fn unsafe_code(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for file in sources(root).iter().filter(|file| !file.name.starts_with("crates/sys/")) {
        each_token(file.tokens(), &mut |token, _| {
            if matches!(&token, TokenTree::Ident(ident) if ident == "unsafe") {
                found.push(format!("{}:{}: unsafe outside crates/sys", file.name, line(token.span())));
            }
        });
    }
    found
}

/// Returns every print to the terminal in library crates, except for their tests.
fn printing(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for file in sources(root).iter().filter(|file| file.is_library_code()) {
        let mut prints = Prints::default();
        prints.visit_file(&file.syntax());
        found.extend(
            prints
                .0
                .iter()
                .map(|(line, name)| format!("{}:{line}: {name}! outside crates/pgfresh", file.name)),
        );
    }
    found
}

/// Function, with the line where its signature starts and the line of its closing brace.
struct Function {
    name: String,
    first: usize,
    last: usize,
}

impl Function {
    fn lines(&self) -> usize {
        self.last + 1 - self.first
    }
}

/// Collects a file's functions at any depth, including those in macro arguments.
#[derive(Default)]
struct Functions(Vec<Function>);

impl Functions {
    fn add(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let (first, last) = (line(signature.span()), body.brace_token.span.close().end().line);
        self.0.push(Function { name: signature.ident.to_string(), first, last });
    }

    /// Searches for `fn`, a name, and the next block, because the parser might not see functions in
    /// `proptest!` and similar macros.
    fn search(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            match (token, tokens.get(at + 1)) {
                (TokenTree::Ident(word), Some(TokenTree::Ident(name))) if word == "fn" => {
                    let body = tokens[at..].iter().find_map(braces);
                    if let Some(last) = body {
                        self.0.push(Function { name: name.to_string(), first: line(word.span()), last });
                    }
                }
                (TokenTree::Group(group), _) => self.search(group.stream()),
                _ => {}
            }
        }
    }
}

/// Returns the last line of a block in braces.
fn braces(token: &TokenTree) -> Option<usize> {
    match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
            Some(group.span_close().end().line)
        }
        _ => None,
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.add(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.search(item.tokens.clone());
    }
}

/// Whether a module is for tests only.
pub(crate) fn is_of_tests(item: &syn::ItemMod) -> bool {
    let is_test = |attribute: &syn::Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    };
    item.attrs.iter().any(is_test)
}

/// Collects a file's printing macros by line and name, except in its `#[cfg(test)]` modules.
#[derive(Default)]
struct Prints(Vec<(usize, String)>);

impl Prints {
    fn add(&mut self, name: &proc_macro2::Ident) {
        if PRINTING.iter().any(|printing| name == printing) {
            self.0.push((line(name.span()), name.to_string()));
        }
    }
}

impl<'ast> Visit<'ast> for Prints {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_of_tests(item) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        if let Some(last) = item.path.segments.last() {
            self.add(&last.ident);
        }
        each_token(item.tokens.clone(), &mut |token, next| {
            if let (TokenTree::Ident(name), Some(TokenTree::Punct(mark))) = (token, next)
                && mark.as_char() == '!'
            {
                self.add(name);
            }
        });
    }
}

/// Calls `each` with every token and its successor, including tokens within groups.
fn each_token(tokens: TokenStream, each: &mut impl FnMut(&TokenTree, Option<&TokenTree>)) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        each(&token, tokens.peek());
        if let TokenTree::Group(group) = token {
            each_token(group.stream(), each);
        }
    }
}

fn line(span: Span) -> usize {
    span.start().line
}

/// Rust file in the repository. Its name is the path relative to the root, with slashes.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) text: String,
}

impl Source {
    fn syntax(&self) -> syn::File {
        syn::parse_file(&self.text).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    pub(super) fn tokens(&self) -> TokenStream {
        self.text.parse().unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// Whether the file is in the `src` folder of a library crate, and isn't a test module.
    fn is_library_code(&self) -> bool {
        let mut parts = self.name.split('/');
        let placed = (parts.next(), parts.next(), parts.next());
        matches!(placed, (Some("crates"), Some(name), Some("src")) if name != "pgfresh")
            && !parts.any(|part| part == "tests" || part == "tests.rs")
    }
}

/// Returns every Rust file under `crates/` and `clients/`, by name.
pub(super) fn sources(root: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    for top in ["crates", "clients"] {
        let folder = root.join(top);
        if folder.is_dir() {
            collect(root, &folder, &mut found);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    for path in entries(folder) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let ours = !matches!(name.as_str(), "target" | "node_modules") && !name.starts_with('.');
        if path.is_dir() && ours {
            collect(root, &path, found);
        } else if path.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
            let relative = path.strip_prefix(root).expect("it was found under the root");
            found.push(Source { name: relative.to_string_lossy().into_owned(), text: read(&path) });
        }
    }
}

/// Returns the names of the folders under `crates/` that contain a crate.
fn crates(root: &Path) -> Vec<String> {
    let folders = entries(&root.join("crates")).into_iter().filter(|path| path.join("Cargo.toml").is_file());
    let mut names: Vec<String> =
        folders.map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    listed.map(|entry| entry.expect("the folder can be read").path()).collect()
}

pub(super) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(super) fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("it has a folder")).unwrap();
    fs::write(path, text).unwrap();
}

/// Returns the repository's root.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/pgfresh lies two below")
        .to_owned()
}

#[track_caller]
pub(super) fn report(violations: &[String]) {
    assert!(
        violations.is_empty(),
        "{} against the house rules:\n{}",
        violations.len(),
        violations.join("\n")
    );
}
