//! Parses arrays in PostgreSQL's text format, such as `{a,"b c",NULL}`.
//!
//! Source: `array_out` in `src/backend/utils/adt/arrayfuncs.c`.

/// An array element: a value, NULL, or an inner array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Element {
    Value(String),
    Null,
    Array(Vec<Element>),
}

/// Maximum number of dimensions, `MAXDIM`.
const DIMENSIONS: usize = 6;

/// Parses a one-dimensional array of values. Returns `None` if the text isn't an array, or if the array contains NULL
/// or inner arrays.
pub(crate) fn values(text: &str, delimiter: char) -> Option<Vec<String>> {
    let value = |element| match element {
        Element::Value(value) => Some(value),
        Element::Null | Element::Array(_) => None,
    };
    parse(text, delimiter)?.into_iter().map(value).collect()
}

/// Parses an array of finite numbers. Returns `None` for anything else.
pub(crate) fn numbers(text: &str) -> Option<Vec<f32>> {
    let number = |value: String| value.parse().ok().filter(|number: &f32| number.is_finite());
    values(text, ',')?.into_iter().map(number).collect()
}

/// Parses an array. Returns `None` if the text isn't an array.
pub(crate) fn parse(text: &str, delimiter: char) -> Option<Vec<Element>> {
    let mut parser = Parser { rest: text, delimiter };
    let elements = parser.array(DIMENSIONS)?;
    parser.rest.is_empty().then_some(elements)
}

struct Parser<'a> {
    rest: &'a str,
    delimiter: char,
}

impl Parser<'_> {
    fn take(&mut self, expected: char) -> bool {
        let rest = self.rest.strip_prefix(expected);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn array(&mut self, dimensions: usize) -> Option<Vec<Element>> {
        if dimensions == 0 || !self.take('{') {
            return None;
        }
        let mut elements = Vec::new();
        if self.take('}') {
            return Some(elements);
        }
        loop {
            elements.push(match self.rest.chars().next()? {
                '{' => Element::Array(self.array(dimensions - 1)?),
                '"' => Element::Value(self.quoted()?),
                _ => self.bare()?,
            });
            if self.take('}') {
                return Some(elements);
            }
            if !self.take(self.delimiter) {
                return None;
            }
        }
    }

    fn quoted(&mut self) -> Option<String> {
        let mut value = String::new();
        let mut characters = self.rest.char_indices().skip(1);
        while let Some((at, character)) = characters.next() {
            match character {
                '\\' => value.push(characters.next()?.1),
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return Some(value);
                }
                _ => value.push(character),
            }
        }
        None
    }

    fn bare(&mut self) -> Option<Element> {
        let end = self.rest.find([self.delimiter, '}'])?;
        let (value, rest) = self.rest.split_at(end);
        // The server quotes empty texts and texts with these characters, so an unquoted one is invalid.
        if value.is_empty() || value.contains(['"', '\\', '{']) {
            return None;
        }
        self.rest = rest;
        Some(if value.eq_ignore_ascii_case("null") {
            Element::Null
        } else {
            Element::Value(value.to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_keep_quotes_and_special_characters() {
        let parsed = values(r#"{a,"b c","",NULLS,"NULL","\"\\","{1,2}","ä,ö"}"#, ',').unwrap();
        assert_eq!(parsed, ["a", "b c", "", "NULLS", "NULL", "\"\\", "{1,2}", "ä,ö"]);
        assert_eq!(values("{(1,2),(0,0);(3,4),(1,1)}", ';').unwrap(), ["(1,2),(0,0)", "(3,4),(1,1)"]);
        assert_eq!(values("{}", ',').unwrap(), [""; 0]);
        let value = |text: &str| Element::Value(text.to_owned());
        let rows = parse("{{a,NULL},{b,c}}", ',').unwrap();
        assert_eq!(
            rows,
            [Element::Array(vec![value("a"), Element::Null]), Element::Array(vec![value("b"), value("c")])]
        );
    }

    #[test]
    fn damaged_arrays_are_refused() {
        let deep = "{".repeat(100_000);
        for text in ["", "a", "{", "{a", "{a,}", "{,a}", "{a}b", "{\"a}", "{\"a\\", "{a\"b}", "{a{b}", &deep]
        {
            assert_eq!(parse(text, ','), None, "{text}");
        }
        assert_eq!(values("{NULL}", ','), None);
        assert_eq!(values("{{a}}", ','), None);
        for text in ["{NaN}", "{inf}", "{1e999}", "{x}"] {
            assert_eq!(numbers(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn quoted_values_survive(list in proptest::collection::vec(any::<String>(), 0..8)) {
            let quote = |value: &String| format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""));
            let text = format!("{{{}}}", list.iter().map(quote).collect::<Vec<_>>().join(","));
            prop_assert_eq!(values(&text, ','), Some(list));
        }

        #[test]
        fn any_text_gives_a_result(text in r#"[{}",\\a NUL]{0,40}"#) {
            let _ = parse(&text, ',');
        }
    }
}
