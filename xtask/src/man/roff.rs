//! Markdown as the macros of man(7).
//!
//! *Responsible for* what the manuals of this project use: headings, paragraphs, lists, tables, blocks of code, emphasis, links.
//! *Deliberately not*: pictures, footnotes and HTML, of which only the text is left. *Invariant*: no text of a manual becomes a
//! request: a point or an apostrophe at the beginning of a line, and backslashes, are escaped.

use core::fmt::Write as _;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A text with what roff would read as its own escaped; `-` is left to be a hyphen.
pub(super) fn text(plain: &str) -> String {
    plain.replace('\\', "\\e")
}

/// The same for what is typed or copied: `-` is a minus.
pub(super) fn literal(plain: &str) -> String {
    text(plain)
        .replace('-', "\\-")
        .replace('\'', "\\(aq")
        .replace('`', "\\(ga")
        .replace('^', "\\(ha")
        .replace('~', "\\(ti")
}

/// A block that is shown as it stands.
pub(super) fn verbatim(code: &str) -> String {
    let lines = code.trim_end().lines().map(|line| format!("{}\n", guarded(&literal(line))));
    format!(".PP\n.RS 4\n.nf\n{}.fi\n.RE\n", lines.collect::<String>())
}

/// A line that is no request, whatever it begins with.
fn guarded(line: &str) -> String {
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() }
}

/// What a manual says, from its first heading of the second level on if `skip_title`, as the body of a page.
pub(super) fn body(markdown: &str) -> String {
    let mut page = Page::default();
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        page.take(event);
    }
    page.flush();
    page.out
}

#[derive(Default)]
struct Page {
    out: String,
    /// The paragraph, item or cell that is being read, already in roff's words.
    line: String,
    /// A block of code that is being read.
    code: Option<String>,
    /// The numbers of the next items of the lists around; `None`: not numbered.
    lists: Vec<Option<u64>>,
    /// Whether the next paragraph belongs to the tag of an item.
    tagged: bool,
    /// The heads of the columns of the table that is being read, and its cells of the present row.
    heads: Vec<String>,
    cells: Vec<String>,
    heading: bool,
}

impl Page {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(&tag),
            Event::End(tag) => self.end(tag),
            Event::Text(words) => match &mut self.code {
                Some(code) => code.push_str(&words),
                None => self.line.push_str(&text(&words)),
            },
            Event::Code(words) if self.heading => self.line.push_str(&text(&words)),
            Event::Code(words) => {
                let _ = write!(self.line, "\\fB{}\\fR", literal(&words));
            }
            Event::SoftBreak | Event::HardBreak => self.line.push(if self.heading { ' ' } else { '\n' }),
            Event::Rule => self.out.push_str(".PP\n"),
            _ => {}
        }
    }

    fn start(&mut self, tag: &Tag<'_>) {
        match tag {
            Tag::Heading { .. } => {
                self.flush();
                self.heading = true;
            }
            Tag::CodeBlock(_) => {
                self.flush();
                self.code = Some(String::new());
            }
            Tag::List(first) => {
                self.flush();
                if !self.lists.is_empty() {
                    self.out.push_str(".RS 4\n");
                }
                self.lists.push(*first);
            }
            Tag::Item => {
                self.flush();
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}.", *number - 1)
                    }
                    _ => "\\(bu".into(),
                };
                let _ = writeln!(self.out, ".IP {mark} 4");
                self.tagged = true;
            }
            Tag::Emphasis => self.line.push_str("\\fI"),
            Tag::Strong => self.line.push_str("\\fB"),
            Tag::Table(_) => self.flush(),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(level) => {
                let words = core::mem::take(&mut self.line);
                self.heading = false;
                let words = words.trim().replace('"', "\\(dq");
                let _ = match level as usize {
                    1 | 2 => writeln!(self.out, ".SH \"{}\"", words.to_uppercase()),
                    _ => writeln!(self.out, ".SS \"{words}\""),
                };
            }
            TagEnd::Paragraph => self.flush(),
            TagEnd::CodeBlock => {
                let code = self.code.take().unwrap_or_default();
                self.out.push_str(&verbatim(&code));
            }
            TagEnd::List(_) => {
                self.flush();
                self.lists.pop();
                if !self.lists.is_empty() {
                    self.out.push_str(".RE\n");
                }
            }
            TagEnd::Item => {
                self.flush();
                self.tagged = false;
            }
            TagEnd::Emphasis | TagEnd::Strong => self.line.push_str("\\fR"),
            TagEnd::TableCell => self.cells.push(core::mem::take(&mut self.line).trim().to_owned()),
            TagEnd::TableHead => self.heads = core::mem::take(&mut self.cells),
            TagEnd::TableRow => self.row(),
            _ => {}
        }
    }

    /// A row is its first cell as a tag, and the others below it, with the heads of their columns if there is more than one.
    fn row(&mut self) {
        let cells = core::mem::take(&mut self.cells);
        let Some((first, rest)) = cells.split_first() else { return };
        let _ = writeln!(self.out, ".TP\n{}", guarded(first));
        for (index, cell) in rest.iter().enumerate().filter(|(_, cell)| !cell.is_empty()) {
            let head = self.heads.get(index + 1).filter(|head| rest.len() > 1 && !head.is_empty());
            if index > 0 {
                self.out.push_str(".br\n");
            }
            let cell = head.map_or_else(|| cell.clone(), |head| format!("{head}: {cell}"));
            let _ = writeln!(self.out, "{}", guarded(&cell));
        }
    }

    /// Ends the paragraph that is being read.
    fn flush(&mut self) {
        let line = core::mem::take(&mut self.line);
        if line.trim().is_empty() {
            return;
        }
        if !core::mem::take(&mut self.tagged) {
            self.out.push_str(if self.lists.is_empty() { ".PP\n" } else { ".IP\n" });
        }
        for line in line.trim().lines() {
            let _ = writeln!(self.out, "{}", guarded(line.trim()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_paragraphs_and_code_become_their_macros() {
        let page =
            body("## Some `things`\n\nWords and `a-b`,\n*more*.\n\n### Less\n\n```c\nint x = '\\n';\n.PP\n```\n");
        assert_eq!(
            page,
            ".SH \"SOME THINGS\"\n.PP\nWords and \\fBa\\-b\\fR,\n\\fImore\\fR.\n.SS \"Less\"\n.PP\n.RS 4\n.nf\n\
             int x = \\(aq\\en\\(aq;\n\\&.PP\n.fi\n.RE\n"
        );
    }

    #[test]
    fn lists_are_tagged_paragraphs_and_may_lie_in_each_other() {
        assert_eq!(
            body("1. one\n2. two\n   - in it\n\nafter\n"),
            ".IP 1. 4\none\n.IP 2. 4\ntwo\n.RS 4\n.IP \\(bu 4\nin it\n.RE\n.PP\nafter\n"
        );
    }

    #[test]
    fn a_table_is_a_list_of_tags_with_the_heads_of_further_columns() {
        assert_eq!(body("| a | b |\n| --- | --- |\n| `x` | y |\n"), ".TP\n\\fBx\\fR\ny\n");
        assert_eq!(body("| a | b | c |\n| --- | --- | --- |\n| x | y | z |\n"), ".TP\nx\nb: y\n.br\nc: z\n");
    }

    #[test]
    fn no_text_becomes_a_request() {
        let page = body("A file\n.so of libc, and\n'x, \\fB.\n");
        assert_eq!(page, ".PP\nA file\n\\&.so of libc, and\n\\&'x, \\efB.\n");
    }
}
