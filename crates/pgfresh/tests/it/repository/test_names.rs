//! Checks that test names are short enough to read in a list.

use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::house::{Source, report, root, sources, write};

/// Maximum number of words in a test's name.
const WORDS: usize = 8;

#[test]
fn test_names_have_at_most_eight_words() {
    report(&long_names(&root()));
}

#[test]
fn planted_long_names_are_found() {
    let planted = tempfile::tempdir().unwrap();
    let source = "#[test] #[ignore] fn one_2_3_4_5_6_7_8() {}\n\
        mod inner { #[tokio::test]\n async fn one_2_3_4_5_6_7_8_9() {} }\n\
        on_every_major! { short\n a_2_3_4_5_6_7_8_9 }\n\
        property! { #[test]\n fn b_2_3_4_5_6_7_8_9(x in 0..9) {} }\n\
        fn no_3_4_5_6_7_8_9_10_test() {}\n";
    write(planted.path(), "crates/storage/src/lib.rs", source);
    assert_eq!(
        long_names(planted.path()),
        ["one_2_3_4_5_6_7_8_9", "a_2_3_4_5_6_7_8_9", "b_2_3_4_5_6_7_8_9"]
            .map(|name| format!("crates/storage/src/lib.rs: {name} has 9 words, 8 are allowed"))
    );
}

fn long_names(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for file in sources(root) {
        for name in names(&file) {
            let words = name.split('_').count();
            if words > WORDS {
                found.push(format!("{}: {name} has {words} words, {WORDS} are allowed", file.name));
            }
        }
    }
    found
}

/// Returns the names of all tests in a file, in source order.
pub(super) fn names(file: &Source) -> Vec<String> {
    let mut found = Vec::new();
    collect(file.tokens(), &mut found);
    found
}

/// Adds functions with a `test` attribute, and the functions that `on_every_major!` names.
fn collect(tokens: TokenStream, found: &mut Vec<String>) {
    let mut is_test = false;
    let mut before: [Option<TokenTree>; 2] = [None, None];
    for token in tokens {
        let is =
            |at: &Option<TokenTree>, word: &str| at.as_ref().is_some_and(|token| token.to_string() == word);
        match &token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket && is(&before[1], "#") => {
                is_test |= group.stream().into_iter().any(|token| token.to_string() == "test");
            }
            TokenTree::Group(group) if is(&before[0], "on_every_major") && is(&before[1], "!") => {
                found.extend(group.stream().into_iter().map(|token| token.to_string()));
            }
            TokenTree::Group(group) => collect(group.stream(), found),
            TokenTree::Ident(name) if is_test && is(&before[1], "fn") => {
                found.push(name.to_string());
                is_test = false;
            }
            _ => {}
        }
        let [_, last] = before;
        before = [last, Some(token)];
    }
}
