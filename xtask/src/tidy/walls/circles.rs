//! Which file uses what another file defines, and which files thereby depend on each other in a circle.
//!
//! The files of `engine/` are one node; every other file is a node. An arrow leads from a file to the file that defines an
//! item which it names, by a path or a `use`, re-exports followed. `mod` lines and tests do not count.
//!
//! What has no path is approximated, for types of expressions are not known here. A call `.name()` is an arrow to the engine's
//! method of that name if the receiver is `self` in an `impl Engine`, or a parameter that is declared as a reference to the
//! engine; with any other receiver only if the crate defines `name` once, and the file names the engine elsewhere, without
//! which it can hardly have one. Calls of other types' methods, and fields, are no arrows.

use super::functions::Functions;
use super::sources::{Named, Sources, imports, words};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprMethodCall, FnArg, ImplItemFn, ItemFn, ItemImpl, ItemMod, ItemTrait, ItemUse, Macro, Pat,
    Signature, Type, UnOp,
};

/// The node of `engine.rs` and everything in `engine/`.
const ENGINE: &str = "engine/";

/// Who uses what of whom.
pub(super) struct Arrows {
    /// The files, those of the engine as one.
    nodes: BTreeSet<String>,
    /// From, to, and the names that are used.
    arrows: BTreeMap<(String, String), BTreeSet<String>>,
    /// The types that `engine/` defines, without the engine itself, and which other files use.
    pub(super) engine_types: BTreeSet<String>,
}

impl Arrows {
    /// The arrows between the files of the crate.
    pub(super) fn of(sources: &Sources, functions: &Functions) -> Self {
        let mut methods: BTreeMap<usize, BTreeMap<&str, Vec<usize>>> = BTreeMap::new();
        let mut defined: BTreeMap<&str, usize> = BTreeMap::new();
        for function in &functions.all {
            if let Some(owner) = function.owner {
                methods.entry(owner).or_default().entry(&function.name).or_default().push(function.file);
            }
            if function.has_receiver {
                *defined.entry(&function.name).or_default() += 1;
            }
        }
        let mut found = Self {
            nodes: sources.files.iter().map(|file| node(&file.path)).collect(),
            arrows: BTreeMap::new(),
            engine_types: BTreeSet::new(),
        };
        for (file, source) in sources.files.iter().enumerate() {
            let mut reader = Reader {
                sources,
                methods: &methods,
                engine: sources.engine(),
                module: source.module,
                owner: None,
                engines: Vec::new(),
                uses: BTreeMap::new(),
                doubtful: BTreeSet::new(),
            };
            source.items.iter().for_each(|item| reader.visit_item(item));
            reader.settle(&defined);
            for ((to, name), def) in reader.uses {
                found.add(sources, file, to, name, def);
            }
        }
        found
    }

    fn add(&mut self, sources: &Sources, from: usize, to: usize, name: String, def: Option<usize>) {
        let (from, to) = (node(&sources.files[from].path), node(&sources.files[to].path));
        if from == to {
            return;
        }
        if to == ENGINE && def.is_some_and(|def| sources.defs[def].is_type && Some(def) != sources.engine()) {
            self.engine_types.insert(name.clone());
        }
        self.arrows.entry((from, to)).or_default().insert(name);
    }

    /// The circles, largest first: files each of which leads to every other.
    pub(super) fn circles(&self) -> Vec<BTreeSet<&str>> {
        let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (from, to) in self.arrows.keys() {
            next.entry(from).or_default().push(to);
        }
        let reached = |from: &str| {
            let (mut seen, mut waiting) = (BTreeSet::new(), vec![from]);
            while let Some(at) = waiting.pop() {
                for to in next.get(at).into_iter().flatten() {
                    if seen.insert(*to) {
                        waiting.push(to);
                    }
                }
            }
            seen
        };
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.nodes.iter().map(|node| (node.as_str(), reached(node))).collect();
        let leads = |from: &str, to: &str| reached.get(from).is_some_and(|seen| seen.contains(to));
        let circle = |node: &str| -> BTreeSet<&str> {
            self.nodes.iter().map(String::as_str).filter(|other| leads(node, other) && leads(other, node)).collect()
        };
        let circles: BTreeSet<BTreeSet<&str>> =
            self.nodes.iter().map(|node| circle(node)).filter(|circle| !circle.is_empty()).collect();
        let mut circles: Vec<_> = circles.into_iter().collect();
        circles.sort_by_key(|circle| core::cmp::Reverse(circle.len()));
        circles
    }

    /// The files of `carrier/` that are in a circle with a file outside.
    pub(super) fn carrier_circles(&self) -> Vec<String> {
        let mixed = self.circles().into_iter().filter(|circle| !circle.iter().all(|path| super::in_carrier(path)));
        mixed.flatten().filter(|path| super::in_carrier(path)).map(str::to_owned).collect()
    }

    /// Where the arrows of `from` lead within `circle`, each with names that it is for.
    pub(super) fn within(&self, circle: &BTreeSet<&str>, from: &str) -> String {
        /// How many names of an arrow are listed.
        const NAMES: usize = 3;
        let inside = self.arrows.iter().filter(|((a, b), _)| a == from && circle.contains(b.as_str()));
        let listed = inside.map(|((_, to), names)| {
            let first: Vec<&str> = names.iter().take(NAMES).map(String::as_str).collect();
            format!("{to} ({}{})", first.join(", "), if names.len() > NAMES { ", ..." } else { "" })
        });
        listed.collect::<Vec<_>>().join(", ")
    }
}

fn node(path: &str) -> String {
    if super::in_engine(path) { ENGINE.to_owned() } else { path.to_owned() }
}

/// Reads one file.
struct Reader<'a> {
    sources: &'a Sources,
    /// The functions of each type's `impl` blocks, with their files.
    methods: &'a BTreeMap<usize, BTreeMap<&'a str, Vec<usize>>>,
    engine: Option<usize>,
    module: usize,
    /// The type of the `impl` block around.
    owner: Option<usize>,
    /// The parameters of the functions around that are references to the engine.
    engines: Vec<String>,
    /// The file of what is used and its name, and its definition where that is known.
    uses: BTreeMap<(usize, String), Option<usize>>,
    /// Methods that are called on something that may be the engine.
    doubtful: BTreeSet<String>,
}

impl Reader<'_> {
    /// Decides on the calls whose receiver is not known, when the whole file has been read.
    fn settle(&mut self, defined: &BTreeMap<&str, usize>) {
        let names_engine = self.engine.is_some() && self.uses.values().any(|def| *def == self.engine);
        for name in core::mem::take(&mut self.doubtful) {
            if names_engine && defined.get(name.as_str()) == Some(&1) {
                self.method(self.engine, &name);
            }
        }
    }

    fn path(&mut self, path: &[String]) {
        if path.first().is_some_and(|first| first == "Self") {
            if let Some(name) = path.get(1) {
                self.method(self.owner, name);
            }
            return;
        }
        let found = self.sources.resolve(self.module, path);
        self.used(path, found);
    }

    fn used(&mut self, path: &[String], found: Vec<Named>) {
        for named in found {
            let Named::Item { file, def, rest } = named else { continue };
            let name = match def {
                Some(def) => self.sources.defs[def].name.clone(),
                None => path.get(path.len() - rest.len() - 1).cloned().unwrap_or_default(),
            };
            self.uses.insert((file, name), def);
            if let Some(name) = rest.first() {
                self.method(def.map(|def| self.sources.behind_alias(def)), name);
            }
        }
    }

    /// Uses what `impl` blocks of the type call `name`, if they do.
    fn method(&mut self, owner: Option<usize>, name: &str) {
        let methods = owner.and_then(|owner| self.methods.get(&owner));
        for file in methods.and_then(|methods| methods.get(name)).into_iter().flatten() {
            self.uses.entry((*file, name.to_owned())).or_default();
        }
    }

    /// A call `.name()`, on a variable or on something else.
    fn call(&mut self, receiver: Option<&str>, name: &str) {
        match receiver {
            Some("self") if self.owner.is_some() && self.owner == self.engine => self.method(self.engine, name),
            // Another type's method.
            Some("self") => {}
            Some(variable) if self.engines.iter().any(|engine| engine == variable) => self.method(self.engine, name),
            _ => {
                self.doubtful.insert(name.to_owned());
            }
        }
    }

    /// Reads what a macro is given, as paths and calls.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let ident = |at: usize| match tokens.get(at) {
            Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
            _ => None,
        };
        let punct = |at: Option<usize>, c: char| match at.and_then(|at| tokens.get(at)) {
            Some(TokenTree::Punct(punct)) => punct.as_char() == c,
            _ => false,
        };
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            if let TokenTree::Group(group) = token {
                self.tokens(group.stream());
            }
            let (begin, mut path) = (at, Vec::new());
            while let Some(word) = ident(at) {
                path.push(word);
                at += 1;
                if !(punct(Some(at), ':') && punct(Some(at + 1), ':') && ident(at + 2).is_some()) {
                    break;
                }
                at += 2;
            }
            let Some(first) = path.first() else {
                at += 1;
                continue;
            };
            let dot = begin.checked_sub(1).filter(|dot| punct(Some(*dot), '.'));
            // `..` is before a path, and `.` before a method or a field.
            match dot.filter(|dot| !punct(dot.checked_sub(1), '.')) {
                None => self.path(&path),
                Some(dot) if matches!(tokens.get(at), Some(TokenTree::Group(_))) => {
                    let alone = !punct(dot.checked_sub(2), '.');
                    let receiver = dot.checked_sub(1).and_then(&ident).filter(|_| alone);
                    self.call(receiver.as_deref(), first);
                }
                Some(_) => {}
            }
        }
    }

    /// Reads a function with its parameters.
    fn function(&mut self, signature: &Signature, read: impl FnOnce(&mut Self)) {
        let around = self.engines.len();
        for input in &signature.inputs {
            let FnArg::Typed(parameter) = input else { continue };
            let Type::Reference(reference) = &*parameter.ty else { continue };
            let def = match &*reference.elem {
                Type::Path(path) if path.path.is_ident("Self") => self.owner,
                ty => self.sources.type_def(self.module, ty),
            };
            if let (Pat::Ident(pattern), true) = (&*parameter.pat, def.is_some() && def == self.engine) {
                self.engines.push(pattern.ident.to_string());
            }
        }
        read(self);
        self.engines.truncate(around);
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let around = self.module;
        self.module = self.sources.child(around, &item.ident.to_string()).unwrap_or(around);
        visit::visit_item_mod(self, item);
        self.module = around;
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        let around = self.owner;
        self.owner = self.sources.type_def(self.module, &block.self_ty);
        visit::visit_item_impl(self, block);
        self.owner = around;
    }

    fn visit_item_trait(&mut self, block: &'ast ItemTrait) {
        let around = self.owner.take();
        visit::visit_item_trait(self, block);
        self.owner = around;
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.function(&function.sig, |reader| visit::visit_item_fn(reader, function));
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.function(&function.sig, |reader| visit::visit_impl_item_fn(reader, function));
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        for import in imports(item) {
            self.path(&import.path);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(words) = words(path) {
            self.path(&words);
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.call(variable(&call.receiver).as_deref(), &call.method.to_string());
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        visit::visit_macro(self, call);
        if let Some(name) = call.path.get_ident().map(ToString::to_string) {
            let found = self.sources.resolve_macro(self.module, &name);
            self.used(&[name], found);
        }
        self.tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

/// The variable that an expression is, or borrows.
fn variable(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Path(path) if path.qself.is_none() => path.path.get_ident().map(ToString::to_string),
        Expr::Paren(inner) => variable(&inner.expr),
        Expr::Reference(inner) => variable(&inner.expr),
        Expr::Unary(inner) if matches!(inner.op, UnOp::Deref(_)) => variable(&inner.expr),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrows(files: &[(&str, &str)]) -> Arrows {
        let sources = super::super::read(files);
        Arrows::of(&sources, &Functions::of(&sources))
    }

    /// The arrows that do not begin at `lib.rs`, with what they are for.
    fn listed(files: &[(&str, &str)]) -> Vec<String> {
        let arrows = arrows(files).arrows.into_iter().filter(|((from, _), _)| from != "lib.rs");
        arrows
            .map(|((from, to), names)| format!("{from} -> {to}: {}", names.into_iter().collect::<Vec<_>>().join(" ")))
            .collect()
    }

    #[test]
    fn three_files_that_use_each_other_are_a_circle_and_what_they_all_use_is_not_in_it() {
        let arrows = arrows(&[
            ("lib.rs", "mod a; mod b; mod c; mod d; mod e; use a::A; fn f() { e::g() }"),
            ("a.rs", "use crate::b::B; pub struct A(crate::d::D);"),
            ("b.rs", "pub struct B; fn f() { super::c::g(); crate::d::D; }"),
            ("c.rs", "pub fn g(d: crate::d::D) { let a: crate::a::A = d; }"),
            ("d.rs", "pub struct D;"),
            ("e.rs", "pub fn g() { crate::f() }"),
        ]);
        let circles = arrows.circles();
        let circles: Vec<Vec<&str>> = circles.iter().map(|circle| circle.iter().copied().collect()).collect();
        assert_eq!(circles, [vec!["a.rs", "b.rs", "c.rs"], vec!["e.rs", "lib.rs"]]);
    }

    #[test]
    fn arrows_lead_past_re_exports_to_the_file_that_defines_the_item() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use b::Deep as Renamed;"),
            ("a.rs", "use crate::Renamed; fn f() -> crate::b::Wide { Renamed::new() }"),
            ("b.rs", "mod deep; pub use deep::*;"),
            ("b/deep.rs", "pub struct Deep; pub struct Wide;"),
        ];
        assert_eq!(listed(&files), ["a.rs -> b/deep.rs: Deep Wide"]);
    }

    #[test]
    fn modules_tests_comments_strings_and_other_crates_are_no_arrows() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            (
                "a.rs",
                "//! [`crate::b::B`]
                 use super::b; use bytes::Bytes; use core::fmt;
                 pub(in crate::a) fn f() -> Vec<Bytes> { log(\"crate::b::B\"); /* b::B */ }
                 #[cfg(test)] mod tests { use crate::b::B; #[test] fn g() { super::b::B; } }
                 #[cfg(test)] use crate::b::B;",
            ),
            ("b.rs", "pub struct B;"),
        ];
        assert!(listed(&files).is_empty(), "{:?}", listed(&files));
    }

    #[test]
    fn a_method_named_by_its_type_is_of_the_file_with_its_impl_block() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "pub struct A; impl A { fn own() {} fn f() { Self::act(); Self::own() } }"),
            ("b.rs", "impl crate::a::A { pub fn act() {} }"),
            ("c.rs", "type Short = crate::a::A; fn f() { Short::act() }"),
        ];
        assert_eq!(listed(&files), ["a.rs -> b.rs: act", "b.rs -> a.rs: A", "c.rs -> a.rs: A", "c.rs -> b.rs: act"]);
    }

    #[test]
    fn what_macros_are_given_is_read_too() {
        let files = [
            ("lib.rs", "#[macro_use] mod macros; mod a; mod b; mod engine;"),
            ("macros.rs", "macro_rules! local { () => {} } pub(crate) use local;"),
            (
                "a.rs",
                "use crate::b::{self, Kind}; use crate::engine::Engine;
                 impl Engine { fn f(&self) { assert!(matches!(x.Other, Kind::One | b::Other) && self.turn(1), \"{}\", 0..b::MAX); } }
                 fn g() { crate::macros::local!(); self.turn }",
            ),
            ("b.rs", "pub enum Kind { One } pub struct Other; pub const MAX: u8 = 0;"),
            ("engine.rs", "pub struct Engine; impl Engine { pub fn turn(&self, x: u8) {} }"),
        ];
        assert_eq!(
            listed(&files),
            ["a.rs -> b.rs: Kind MAX Other", "a.rs -> engine/: Engine turn", "a.rs -> macros.rs: local"]
        );
    }

    #[test]
    fn the_files_of_the_engine_are_one_and_their_types_are_listed_when_others_use_them() {
        let arrows = arrows(&[
            ("lib.rs", "mod engine; mod a; pub use engine::Engine;"),
            (
                "engine.rs",
                "mod timers; pub use timers::Timer; pub struct Engine; pub(crate) const LINGER: u8 = 0; struct Own;",
            ),
            (
                "engine/timers.rs",
                "use super::{Engine, Own}; pub enum Timer { A } impl Engine { fn f() { crate::a::g() } }",
            ),
            ("a.rs", "use crate::engine::{Engine, Timer, LINGER}; pub fn g() { Timer::A }"),
        ]);
        assert_eq!(arrows.circles(), [BTreeSet::from(["a.rs", ENGINE])]);
        assert_eq!(arrows.engine_types.iter().collect::<Vec<_>>(), ["Timer"]);
    }

    #[test]
    fn calls_of_the_engines_methods_are_arrows_where_the_receiver_is_the_engine_or_may_be() {
        let engine = "pub struct Engine { other: Other } pub struct Other; impl Other { fn len(&self) {} }";
        let sends = "use crate::engine::Engine; impl Engine { pub fn send(&self) {} pub fn len(&self) {} pub fn shut(&self) {} }";
        let calls = |text: &str| {
            let files = [
                ("lib.rs", "mod engine; mod sends; mod a;"),
                ("engine.rs", engine),
                ("sends.rs", sends),
                ("a.rs", text),
            ];
            listed(&files).into_iter().find_map(|arrow| arrow.strip_prefix("a.rs -> sends.rs: ").map(str::to_owned))
        };
        let found = |text| calls(text).unwrap_or_default();
        assert_eq!(
            found("impl crate::engine::Engine { fn f(&mut self) { self.len(); (&mut *self).shut(); } }"),
            "len shut"
        );
        assert_eq!(found("fn f(engine: &mut crate::engine::Engine) { engine.len(); g(|| engine.send()) }"), "len send");
        assert_eq!(found("impl crate::engine::Engine { fn f(this: &Self) { this.len() } }"), "len");
        // Another type has a `len` too, so that only `send` must be the engine's.
        assert_eq!(found("use crate::engine::Engine; fn f() { whole().len(); whole().send(); }"), "send");
        assert_eq!(found("struct A; impl A { fn f(&self, e: &crate::engine::Engine) { self.send() } }"), "");
        assert_eq!(found("fn f() { socket.send(); socket.shut(); }"), "");
    }

    #[test]
    fn carriers_in_a_circle_with_others_are_listed_and_a_circle_among_themselves_is_not() {
        let files = |udp| {
            [
                ("lib.rs", "mod carrier; mod ids;"),
                ("carrier/mod.rs", "mod tcp; mod udp; pub(crate) struct Carriers(tcp::Tcp, udp::Udp);"),
                ("carrier/tcp.rs", "use super::Carriers; use crate::ids::Id; pub struct Tcp;"),
                ("carrier/udp.rs", "use crate::ids::Id; pub struct Udp;"),
                ("ids.rs", udp),
            ]
        };
        assert!(arrows(&files("pub struct Id;")).carrier_circles().is_empty());
        assert_eq!(
            arrows(&files("pub struct Id; use crate::carrier::udp::Udp;")).carrier_circles(),
            ["carrier/udp.rs"]
        );
    }
}
