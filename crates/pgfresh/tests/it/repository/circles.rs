//! Checks that a crate's files don't import each other in circles, so that readers can understand a file without all
//! the others. A module and its own children can import each other, because they have the same purpose.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};

use super::house::is_of_tests;

/// Path of a module within its crate. It is empty for the crate root.
type Module = Vec<String>;

/// A crate's modules.
#[derive(Default)]
struct Crate {
    files: BTreeMap<Module, syn::File>,
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for folder in fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path()) {
        let name = folder.file_name().unwrap().to_str().unwrap();
        for circle in Crate::read(&folder.join("src")).circles() {
            found.push(format!("crates/{name}: {}", circle.join(" → ")));
        }
    }
    assert!(found.is_empty(), "files that import each other:\n{}", found.join("\n"));
}

/// Files in this crate refer to each item through the module that defines it. Otherwise, the re-exports in `lib.rs`
/// would connect each file to all others.
#[test]
fn lease_files_import_from_the_defining_module() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("lease/src");
    let detours = Crate::read(&src).detours();
    assert!(
        detours.is_empty(),
        "imports through a module that only names the thing:\n{}",
        detours.join("\n")
    );
}

/// Checks that imports through another module are found.
#[test]
fn a_planted_import_through_another_module_is_found() {
    let planted = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(planted.path().join(name), text).unwrap();
    write("lib.rs", "mod a; mod b; mod c; pub use b::Thing;");
    write("a.rs", "use crate::Thing; use crate::c::Other; use crate::c::Third; fn f() { crate::b::g() }");
    write("b.rs", "pub struct Thing; pub fn g() {} #[cfg(test)] mod tests { use crate::Thing; }");
    write("c.rs", "use std::sync::Arc as Other; pub struct Third;");
    assert_eq!(Crate::read(planted.path()).detours(), ["a: crate::Thing", "a: crate::c::Other"]);
}

/// Checks that circles are found.
#[test]
fn a_circle_that_is_planted_is_found() {
    let planted = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = planted.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    // The circles go through a path in an expression, a re-export and a child. Imports in tests don't count.
    write("lib.rs", "mod a; mod b; mod c; mod d; pub use c::Thing;");
    write("a.rs", "use crate::b::{self, inner::{Other, more}}; fn f() {}");
    write("b/mod.rs", "mod inner; fn f() -> crate::Thing { inner::g() }");
    write("b/inner.rs", "use super::f; pub(crate) fn g() { super::f() }");
    write("c.rs", "pub struct Thing; fn f() { let _ = crate::a::f as fn(); }");
    write("d.rs", "use crate::a::f; #[cfg(test)] mod tests { use crate::d::tests; }");
    let circles = Crate::read(planted.path()).circles();
    assert_eq!(circles, [["a", "b", "c", "a"]]);
}

impl Crate {
    fn read(src: &Path) -> Self {
        let mut found = Self::default();
        let mut folders = vec![src.to_owned()];
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = fs::read_to_string(&path).unwrap();
                    let file =
                        syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                    found.files.insert(module_of(path.strip_prefix(src).unwrap()), file);
                }
            }
        }
        found
    }

    /// Returns each circle once, as module names, with the first name repeated at the end.
    fn circles(&self) -> Vec<Vec<String>> {
        let edges: BTreeMap<&Module, BTreeSet<Module>> =
            self.files.iter().map(|(module, file)| (module, self.imports(module, file))).collect();
        let (mut found, mut known) = (Vec::new(), BTreeSet::new());
        for start in self.files.keys().filter(|module| !module.is_empty()) {
            if known.contains(start) {
                continue;
            }
            if let Some(circle) = shortest_circle(start, &edges) {
                known.extend(circle.iter().cloned());
                found.push(circle.iter().map(|module| module.join("::")).collect());
            }
        }
        found
    }

    /// Returns the modules whose items a file imports, except for the file's parents and children.
    fn imports(&self, module: &Module, file: &syn::File) -> BTreeSet<Module> {
        let mut paths = Paths::default();
        paths.visit_file(file);
        let resolved = paths.0.iter().filter_map(|path| self.resolve(module, path));
        resolved.filter(|other| !other.starts_with(module) && !module.starts_with(other)).collect()
    }

    /// Returns the paths that reach an item through a module that only imports it, except in `lib.rs`.
    fn detours(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (module, file) in self.files.iter().filter(|(module, _)| !module.is_empty()) {
            let mut paths = Paths::default();
            paths.visit_file(file);
            let is_detour = |path: &&Vec<String>| {
                let Some((at, Some(item))) = self.find(module, path) else { return false };
                at != *module && self.imports_name(&at, &item)
            };
            let detours = paths.0.iter().filter(is_detour);
            found.extend(detours.map(|path| format!("{}: {}", module.join("::"), path.join("::"))));
        }
        found
    }

    /// Whether a module imports `name` instead of defining it.
    fn imports_name(&self, module: &Module, name: &str) -> bool {
        let mut imports = Vec::new();
        let items = self.files.get(module).into_iter().flat_map(|file| &file.items);
        for item in items {
            // A macro is defined in the module that gives it a path.
            if let syn::Item::Use(syn::ItemUse { tree: syn::UseTree::Path(tree), .. }) = item {
                names(&tree.tree, &mut imports);
            }
        }
        imports.iter().any(|imported| imported == name)
    }

    /// Returns the module that contains a path's item.
    fn resolve(&self, module: &Module, path: &[String]) -> Option<Module> {
        let (at, item) = self.find(module, path)?;
        Some(item.and_then(|item| self.origin(&at, &item)).unwrap_or(at))
    }

    /// Returns the module that a path leads to, and the next segment of the path, which is an item there. If the path
    /// ends with a module, there is no item.
    fn find(&self, module: &Module, path: &[String]) -> Option<(Module, Option<String>)> {
        let (mut at, mut rest) = match path.first()?.as_str() {
            "crate" => (Module::new(), &path[1..]),
            "self" => (module.clone(), &path[1..]),
            "super" => (module.clone(), path),
            _ => return None,
        };
        while rest.first().is_some_and(|step| step == "super") {
            at.pop();
            rest = &rest[1..];
        }
        while let Some(step) = rest.first() {
            let below: Module = at.iter().chain([step]).cloned().collect();
            if !self.files.contains_key(&below) {
                return Some((at, Some(step.clone())));
            }
            at = below;
            rest = &rest[1..];
        }
        Some((at, None))
    }

    /// Returns the module whose item `name` is re-exported by `module`.
    fn origin(&self, module: &Module, name: &str) -> Option<Module> {
        let uses = self.files.get(module)?.items.iter().filter_map(|item| match item {
            syn::Item::Use(item) if !matches!(item.vis, syn::Visibility::Inherited) => Some(&item.tree),
            _ => None,
        });
        let mut paths = Vec::new();
        uses.for_each(|tree| flatten(tree, &mut Vec::new(), &mut paths));
        let path = paths.into_iter().find(|path| path.last().is_some_and(|last| last == name))?;
        let begins = matches!(path[0].as_str(), "crate" | "self" | "super");
        let path = if begins { path } else { ["self".to_owned()].into_iter().chain(path).collect() };
        self.resolve(module, &path[..path.len() - 1])
    }
}

fn module_of(path: &Path) -> Module {
    let mut steps: Module =
        path.with_extension("").iter().map(|step| step.to_str().unwrap().to_owned()).collect();
    if matches!(steps.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        steps.pop();
    }
    steps
}

/// Returns the shortest path from `start` back to it.
fn shortest_circle(start: &Module, edges: &BTreeMap<&Module, BTreeSet<Module>>) -> Option<Vec<Module>> {
    let mut ways = vec![vec![start.clone()]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for next in edges.get(way.last()?)? {
                let way: Vec<Module> = way.iter().chain([next]).cloned().collect();
                if next == start {
                    return Some(way);
                }
                if seen.insert(next.clone()) {
                    longer.push(way);
                }
            }
        }
        ways = longer;
    }
    None
}

/// Collects all paths that begin with `crate`, `super` or `self`, in imports and elsewhere, except in tests.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_of_tests(item) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        flatten(&item.tree, &mut Vec::new(), &mut self.0);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// Collects the names that an import tree introduces.
fn names(tree: &syn::UseTree, found: &mut Vec<String>) {
    match tree {
        syn::UseTree::Path(path) => names(&path.tree, found),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| names(tree, found)),
        syn::UseTree::Name(name) => found.push(name.ident.to_string()),
        syn::UseTree::Rename(name) => found.push(name.rename.to_string()),
        syn::UseTree::Glob(_) => {}
    }
}

/// Expands an import tree into paths.
fn flatten(tree: &syn::UseTree, before: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    let mut end = |name: String| paths.push(before.iter().cloned().chain([name]).collect());
    match tree {
        syn::UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, paths);
            before.pop();
        }
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, paths)),
        syn::UseTree::Name(name) => end(name.ident.to_string()),
        syn::UseTree::Rename(name) => end(name.ident.to_string()),
        syn::UseTree::Glob(_) => end("*".to_owned()),
    }
}
