//! Rust source taken apart into code, comments and literals.

use std::ops::Range;

/// What a part of a source is that is not code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// From `//` to the end of the line, or a block.
    Comment,
    /// With its quotes.
    Text,
    /// A character.
    Character,
}

/// The parts of a source that are not code, in order, by their bytes.
pub(super) fn parts(source: &str) -> Vec<(Kind, Range<usize>)> {
    let bytes = source.as_bytes();
    let mut parts = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        let after_word = at > 0 && bytes.get(at - 1).copied().is_some_and(is_word);
        let part = match byte {
            b'/' if rest.starts_with(b"//") => {
                Some((Kind::Comment, rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())))
            }
            b'/' if rest.starts_with(b"/*") => Some((Kind::Comment, block_comment(rest))),
            b'r' | b'b' | b'c' if !after_word => raw_string(rest).map(|len| (Kind::Text, len)),
            b'"' => Some((Kind::Text, quoted(rest, b'"'))),
            b'\'' => char_literal(rest).map(|len| (Kind::Character, len)),
            _ => None,
        };
        let len = part.map_or(1, |(_, len)| len.max(1));
        let end = bytes.len().min(at + len);
        parts.extend(part.map(|(kind, _)| (kind, at..end)));
        at = end;
    }
    parts
}

/// The source with the same lines, in which everything that is not code is spaces.
pub(super) fn mask(source: &str) -> String {
    let mut out = source.as_bytes().to_vec();
    for (_, range) in parts(source) {
        for blank in out[range].iter_mut().filter(|b| **b != b'\n') {
            *blank = b' ';
        }
    }
    // Whole characters were blanked, so what is left is still UTF-8.
    String::from_utf8_lossy(&out).into_owned()
}

/// Whether the byte can be part of an identifier.
pub(super) fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || byte >= 0x80
}

/// Where `word` stands as a whole word.
pub(super) fn words<'a>(masked: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = masked.as_bytes();
    masked.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = at.checked_sub(1).and_then(|i| bytes.get(i)).copied();
        let after = bytes.get(at + word.len()).copied();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The line of a byte offset, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|b| *b == b'\n').count()
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0usize);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of a literal that begins with its quote and ends with the next unescaped one.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while let Some(&byte) = rest.get(at) {
        match byte {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of `r"…"`, `br#"…"#` and their like; `None` if this is something else (a raw
/// identifier, a name).
fn raw_string(rest: &[u8]) -> Option<usize> {
    let mut at = usize::from(matches!(rest.first(), Some(b'b' | b'c')));
    if rest.get(at) != Some(&b'r') {
        return None;
    }
    at += 1;
    let hashes = rest[at..].iter().take_while(|b| **b == b'#').count();
    at += hashes;
    if rest.get(at) != Some(&b'"') {
        return None;
    }
    at += 1;
    while at < rest.len() {
        let closing = rest[at] == b'"' && rest[at + 1..].iter().take(hashes).filter(|b| **b == b'#').count() == hashes;
        if closing {
            return Some(at + 1 + hashes);
        }
        at += 1;
    }
    Some(rest.len())
}

/// The length of a character literal; `None` for a lifetime or a label.
fn char_literal(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return Some(quoted(rest, b'\''));
    }
    let mut end = 2;
    while rest.get(end).is_some_and(|b| b & 0xC0 == 0x80) {
        end += 1;
    }
    (rest.get(end) == Some(&b'\'')).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_characters_are_blanked_and_lines_kept() {
        let source = "a // b\n/* c /* d */ e */ f \"g\\\" h\" 'i' '\\'' r#\"j\" k\"# l b\"m\" '\u{e9}' n";
        let masked = mask(source);
        assert_eq!(masked.split_whitespace().collect::<String>(), "aflbn");
        assert_eq!(masked.lines().count(), source.lines().count());
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        let source = "fn r#match<'a>(x: &'a str) -> &'a str { 'l: loop { break 'l x } }";
        assert_eq!(mask(source), source);
    }

    #[test]
    fn unterminated_literals_end_with_the_file() {
        for source in ["\"abc", "/* abc", "r#\"abc\"", "'\\", "// abc", "\"\\"] {
            assert!(mask(source).trim().is_empty(), "{source}");
        }
        assert_eq!(mask("'"), "'");
    }

    #[test]
    fn parts_are_comments_texts_and_characters_with_their_bytes() {
        let source = "a /* b */ \"c\" 'd' br#\"e\"# // f";
        let found: Vec<_> = parts(source).into_iter().map(|(kind, range)| (kind, &source[range])).collect();
        assert_eq!(
            found,
            [
                (Kind::Comment, "/* b */"),
                (Kind::Text, "\"c\""),
                (Kind::Character, "'d'"),
                (Kind::Text, "br#\"e\"#"),
                (Kind::Comment, "// f"),
            ]
        );
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(words("foo foobar a_foo (foo)", "foo").collect::<Vec<_>>(), [0, 18]);
        assert_eq!(line_of("a\nb\nc", 4), 3);
    }
}
