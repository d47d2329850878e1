//! Identifiers that name a protocol.
//!
//! An identifier is split at `_` and where its case changes; it names a protocol if one of its words is one, in the plural
//! or with a version too. Comments and string literals are no identifiers.

use super::sources::Sources;
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{
    Field, FieldPat, FieldValue, Ident, ImplItemFn, ItemEnum, ItemFn, ItemImpl, ItemUse, Macro, Member, Signature,
    Type, Visibility,
};

/// `turn` is not among them: the engine has turns.
const PROTOCOLS: &[&str] = &["tcp", "tls", "dtls", "quic", "sctp", "udp", "mptcp", "utp", "stun"];

/// What programs match to find out why a connection failed: it may name protocols.
const PUBLIC_ERRORS: &[&str] = &["ConnectionError", "AttemptError"];

/// How many identifiers name a protocol in each file outside `carrier/`, largest first. The table of stacks, the public
/// errors with their own methods and what they print, the public fields of `config.rs`, names of public functions and what
/// is given out again (`pub use`) do not count: there the program names protocols, and not the engine.
pub(super) fn outside_carrier(sources: &Sources) -> Vec<(String, usize)> {
    let mut table = Vec::new();
    for source in &sources.files {
        if super::in_carrier(&source.path) || is_table_of_stacks(&source.path) {
            continue;
        }
        let mut counter = Counter { is_config: source.path == "config.rs", found: 0 };
        source.items.iter().for_each(|item| counter.visit_item(item));
        if counter.found > 0 {
            table.push((source.path.clone(), counter.found));
        }
    }
    table.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    table
}

fn is_table_of_stacks(path: &str) -> bool {
    matches!(path, "stack.rs" | "stacks.rs") || path.starts_with("stacks/")
}

struct Counter {
    is_config: bool,
    found: usize,
}

impl Counter {
    /// A public function has its name from what programs call the thing.
    fn function(&mut self, vis: &Visibility, sig: &Signature) {
        if matches!(vis, Visibility::Public(_)) {
            sig.inputs.iter().for_each(|input| self.visit_fn_arg(input));
            self.visit_return_type(&sig.output);
        } else {
            self.visit_signature(sig);
        }
    }

    fn count(&mut self, ident: &Ident) {
        self.found += usize::from(names_protocol(&ident.to_string()));
    }

    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => self.count(&ident),
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Counter {
    fn visit_ident(&mut self, ident: &'ast Ident) {
        self.count(ident);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        visit::visit_macro(self, call);
        self.tokens(call.tokens.clone());
    }

    fn visit_field_value(&mut self, field: &'ast FieldValue) {
        // `{ x }` is one identifier, which syn has as the field and as its value.
        match field.colon_token {
            Some(_) => visit::visit_field_value(self, field),
            None => self.visit_expr(&field.expr),
        }
    }

    fn visit_field_pat(&mut self, field: &'ast FieldPat) {
        match field.colon_token {
            Some(_) => visit::visit_field_pat(self, field),
            None => self.visit_pat(&field.pat),
        }
    }

    fn visit_field(&mut self, field: &'ast Field) {
        if !(self.is_config && matches!(field.vis, Visibility::Public(_))) {
            visit::visit_field(self, field);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.vis, &item.sig);
        self.visit_block(&item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function(&item.vis, &item.sig);
        self.visit_block(&item.block);
    }

    fn visit_member(&mut self, member: &'ast Member) {
        // A public field of `config.rs` is one where it is set, too.
        if !self.is_config {
            visit::visit_member(self, member);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        // What the crate gives out again has the name that its own crate has given it.
        if !matches!(item.vis, Visibility::Public(_)) {
            visit::visit_item_use(self, item);
        }
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        if !PUBLIC_ERRORS.iter().any(|name| item.ident == name) {
            visit::visit_item_enum(self, item);
        }
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        let last = |path: &syn::Path, names: &[&str]| {
            path.segments.last().is_some_and(|segment| names.iter().any(|name| segment.ident == name))
        };
        let prints = block.trait_.as_ref().is_none_or(|(path, _)| last(path, &["Display"]));
        let of_error = matches!(&*block.self_ty, Type::Path(path) if last(&path.path, PUBLIC_ERRORS));
        if !(prints && of_error) {
            visit::visit_item_impl(self, block);
        }
    }
}

/// Whether one of the words of an identifier is a protocol.
fn names_protocol(ident: &str) -> bool {
    let chars: Vec<char> = ident.chars().collect();
    let mut words = vec![String::new()];
    for (at, &c) in chars.iter().enumerate() {
        let lower = |at: Option<usize>| at.and_then(|at| chars.get(at)).is_some_and(|c| !c.is_uppercase() && *c != '_');
        let begins = c.is_uppercase() && (lower(at.checked_sub(1)) || lower(Some(at + 1)));
        if c == '_' || begins {
            words.push(String::new());
        }
        if let (Some(word), true) = (words.last_mut(), c != '_') {
            word.extend(c.to_lowercase());
        }
    }
    words.iter().any(|word| {
        let word = word.trim_end_matches(|c: char| c.is_ascii_digit());
        let plural = |end: &str| word.strip_suffix(end).is_some_and(|word| PROTOCOLS.contains(&word));
        PROTOCOLS.contains(&word) || plural("s") || plural("es")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        let module = path.trim_end_matches("/mod.rs").trim_end_matches(".rs");
        let sources = super::super::read(&[("lib.rs", &format!("mod {module};")), (path, text)]);
        outside_carrier(&sources).iter().filter(|(file, _)| file == path).map(|(_, found)| found).sum()
    }

    #[test]
    fn a_word_of_an_identifier_names_a_protocol() {
        for ident in [
            "tcp",
            "neater_tls",
            "QuicSocket",
            "open_sctp",
            "UDP_PORT",
            "OverMPTCP",
            "MPTCPSocket",
            "quics",
            "dtlses",
            "Tls13",
            "stun_server",
        ] {
            assert!(names_protocol(ident), "{ident}");
        }
        for ident in
            ["turn", "Turn", "ice", "quickly", "Quick", "output", "tcpdump", "as_", "stunned", "titles", "_", "es"]
        {
            assert!(!names_protocol(ident), "{ident}");
        }
    }

    #[test]
    fn code_counts_and_comments_strings_and_tests_do_not() {
        let text = "//! TCP, and QUIC.
            use neater_quic::Connection;
            /// What [`quic`] is.
            fn turn(&mut self) { /* sctp */ log(\"tcp {quic}\", r#\"udp\"#, 'u', b\"tls\"); }
            #[cfg(test)] mod tests { fn over_tcp() {} }";
        assert_eq!(count("send.rs", text), 1);
        assert_eq!(count("send.rs", "fn f() { assert!(matches!(how, How::Tcp { udp, .. }), \"tls\"); self.sctp }"), 3);
        assert_eq!(count("send.rs", "fn f() { let Over { ref tcp, udp: port, .. } = over; Over { quic, tls: 1 } }"), 4);
    }

    #[test]
    fn the_table_of_stacks_and_carriers_may_name_protocols() {
        let text = "enum Stack { Tcp, Quic }";
        for path in ["stack.rs", "stacks.rs", "stacks/mod.rs", "carrier/mod.rs"] {
            assert_eq!(count(path, text), 0, "{path}");
        }
        assert_eq!(count("stacked.rs", text), 2);
    }

    #[test]
    fn public_errors_and_public_settings_may_name_protocols() {
        let text = "pub enum AttemptError { Tls(TlsError) }
            impl core::fmt::Display for AttemptError { fn fmt(&self) { Self::Tls } }
            impl From<TlsError> for AttemptError {}
            pub enum OtherError { Tls }";
        assert_eq!(count("event.rs", text), 2);
        let text = "pub struct Limits { pub sctp_streams: usize, pub(crate) quic: u8, udp: Udp }";
        assert_eq!(count("config.rs", text), 3);
        assert_eq!(count("event.rs", text), 4);
    }
}
