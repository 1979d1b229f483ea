//! Mistakes in what is said of a template: each is named, with its place.

use super::{assert_fails, project};
use crate::common::User;

#[test]
fn mistakes_in_the_file_are_named_with_their_line_and_what_was_meant() {
    let scene = project(User::Ourselves, "");
    for (text, words) in [
        (
            "[template]\nsteup = 'x'\n",
            &["pgfresh.toml:2: unknown key in [template]: \"steup\"", "Did you mean \"setup\"?"][..],
        ),
        (
            "[template.a]\nsetup = 'x'\ninput = 'y'\n",
            &["pgfresh.toml:3: unknown key in [template.a]", "\"inputs\"?"],
        ),
        ("[template]\nsql = 5\n", &["pgfresh.toml:2: bad value for \"sql\": expected a string or an array"]),
        (
            "[template]\ninputs = ['a']\n",
            &["pgfresh.toml:2: [template] needs setup, sql, dump or from", "HINT"],
        ),
        (
            "[template.'a b']\nsetup = 'x'\n",
            &["pgfresh.toml:1: \"a b\" cannot be the name of a template: it has letters"],
        ),
        ("[template.setup]\nsql = 'x'\n", &["pgfresh.toml:1: bad value for \"setup\""]),
        (
            "[template.a]\nfrom = 'b'\n[template.b]\nfrom = 'a'\n",
            &["pgfresh.toml:4: templates go on from each other in a circle: a, b, a\n"],
        ),
        ("[template.a]\nfrom = 'a'\n", &["pgfresh.toml:2: template \"a\" would go on from itself"]),
        ("\n[template]\n", &["pgfresh.toml:2: [template] needs setup, sql, dump or from", "HINT"]),
        ("[template]\nsql = ''\n", &["pgfresh.toml:2: bad value for \"sql\": it is empty"]),
        ("[template]\nsql = [\n'a',\n' ']\n", &["pgfresh.toml:2: bad value for \"sql\": it is empty"]),
        ("[template.a]\nsetup = ''\n", &["pgfresh.toml:2: bad value for \"setup\": it is empty"]),
        (
            "[template.shop]\nfrom = 'bsae'\n[template.base]\nsql = 'x'\n",
            &["pgfresh.toml:2: unknown template", "\"base\"?"],
        ),
        ("[cache]\nsize = 'big'\n", &["pgfresh.toml:2: bad value for \"size\": expected a size"]),
        ("[templates]\n", &["pgfresh.toml:1: unknown table", "\"template\"?"]),
    ] {
        scene.write("pgfresh.toml", text);
        assert_fails(&scene.run(["run", "--", "true"]), words);
    }
}
