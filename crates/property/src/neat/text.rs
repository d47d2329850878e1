//! JSON text as it comes from strangers: read strictly, and places in it found again.

use super::json::NeatError;
use core::fmt;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The longest text that is read, in bytes.
pub const MAX_JSON: usize = 1 << 20;

/// Reads one JSON document (RFC 8259): at most [`MAX_JSON`] bytes, at most 128 levels deep, and
/// without two members of the same name in one object, of which a reader would silently lose one.
///
/// # Errors
/// [`NeatError::Syntax`], with line and column.
pub fn read(text: &str) -> Result<Value, NeatError> {
    if text.len() > MAX_JSON {
        return Err(NeatError::Syntax(format!("longer than {MAX_JSON} bytes")));
    }
    let text = unmarked(text);
    serde_json::from_str::<Strict>(text).map(|strict| strict.0).map_err(|e| NeatError::Syntax(e.to_string()))
}

/// A text without the byte-order mark that some editors put before it; parsers may ignore it (RFC
/// 8259 section 8.1).
fn unmarked(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// A value none of whose objects has two members of one name.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(Value::Bool(b))
    }

    fn visit_u64<E>(self, n: u64) -> Result<Value, E> {
        Ok(n.into())
    }

    fn visit_i64<E>(self, n: i64) -> Result<Value, E> {
        Ok(n.into())
    }

    fn visit_f64<E: Error>(self, n: f64) -> Result<Value, E> {
        Number::from_f64(n).map(Value::Number).ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, s: &str) -> Result<Value, E> {
        Ok(s.into())
    }

    fn visit_string<E>(self, s: String) -> Result<Value, E> {
        Ok(s.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if map.contains_key(&key) {
                let shown: String = key.chars().take(48).collect();
                return Err(A::Error::custom(format!("the member {shown:?} stands twice in one object")));
            }
            let Strict(value) = members.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// Line and column, both from 1 and the column in characters, of the value that `pointer`
/// (RFC 6901) names in the JSON document `text`; of a member, where its name begins. Where the
/// pointer leads nowhere, the deepest value on its way.
#[must_use]
pub fn locate(text: &str, pointer: &str) -> (usize, usize) {
    let text = unmarked(text);
    let mut scan = Scan { bytes: text.as_bytes(), at: 0 };
    scan.blanks();
    let mut found = scan.at;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        match scan.enter(text, &step) {
            Some(at) => found = at,
            None => break,
        }
    }
    let before = text.get(..found).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Walks text that is JSON; on text that is not, it ends somewhere without panicking.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_whitespace() || b == b',' || b == b':') {
            self.at += 1;
        }
    }

    /// Goes behind a string, whose first quotation mark is next.
    fn string(&mut self) {
        self.at += 1;
        while let Some(b) = self.peek() {
            self.at += if b == b'\\' { 2 } else { 1 };
            if b == b'"' {
                return;
            }
        }
    }

    /// Goes behind a value.
    fn value(&mut self) {
        let mut depth = 0usize;
        while let Some(b) = self.peek() {
            match b {
                b'"' => {
                    self.string();
                    if depth == 0 {
                        return;
                    }
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth == 0 => return,
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        self.at += 1;
                        return;
                    }
                }
                b',' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return,
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Goes to the member or element that `step` names; gives the place to show for it.
    fn enter(&mut self, text: &str, step: &str) -> Option<usize> {
        let is_object = match self.peek()? {
            b'{' => true,
            b'[' => false,
            _ => return None,
        };
        self.at += 1;
        for index in 0usize.. {
            self.blanks();
            if matches!(self.peek()?, b'}' | b']') {
                return None;
            }
            let start = self.at;
            let wanted = if is_object {
                self.string();
                let key: Option<String> = text.get(start..self.at).and_then(|k| serde_json::from_str(k).ok());
                self.blanks();
                key.as_deref() == Some(step)
            } else {
                step.parse() == Ok(index)
            };
            if wanted {
                return Some(start);
            }
            let before = self.at;
            self.value();
            // Text that is no JSON must not hold us here.
            if self.at == before && !is_object {
                return None;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_deep_doubled_huge_or_no_number_is_refused_with_its_place() {
        for (text, said) in [
            (r#"{"a": 1, "b": {"c": 1, "c": 2}}"#.to_string(), "\"c\" stands twice"),
            ("[".repeat(1000), "recursion limit"),
            ("[NaN]".into(), "expected value"),
            ("[Infinity]".into(), "expected value"),
            ("[1e999]".into(), "number out of range"),
            ("[1] 2".into(), "trailing characters"),
            ("[1,]".into(), "trailing comma"),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("line 1 column"), "{error}");
        }
        assert!(read(&" ".repeat(MAX_JSON + 1)).unwrap_err().to_string().contains("longer than"));
    }

    #[test]
    fn a_byte_order_mark_says_nothing_and_moves_nothing() {
        let text = "\u{feff}{\"a\": 1, \"b\": 2}";
        assert_eq!(read(text), read(&text[3..]));
        assert_eq!(locate(text, "/b"), (1, 10));
        assert!(read("\u{feff}\u{feff}1").is_err());
    }

    #[test]
    fn a_pointer_leads_to_line_and_column() {
        let text = "{\n  \"a\": [1, {\"b/c\": \"x\\\"}\", \"é~\": [[], 7]}],\n  \"last\": true\n}";
        for (pointer, at) in [
            ("", (1, 1)),
            ("/a", (2, 3)),
            ("/a/0", (2, 9)),
            ("/a/1", (2, 12)),
            ("/a/1/b~1c", (2, 13)),
            ("/a/1/é~0", (2, 28)),
            ("/a/1/é~0/1", (2, 39)),
            ("/last", (3, 3)),
            ("/a/9", (2, 3)),
            ("/nowhere/at/all", (1, 1)),
        ] {
            assert_eq!(locate(text, pointer), at, "{pointer}");
        }
    }

    proptest! {
        #[test]
        fn no_text_and_no_pointer_hold_the_search_up(t in r#"[\[\]{}":,a0\\ é\n]{0,40}"#, p in "(/[a01~]{0,2}){0,4}") {
            let (line, column) = locate(&t, &p);
            prop_assert!(line >= 1 && column >= 1);
        }
    }
}
