//! The functions and `impl` blocks of a crate: which are the engine's, and which type has most.

use super::sources::Sources;
use std::collections::BTreeMap;
use syn::visit::{self, Visit};
use syn::{FnArg, ImplItem, Item, ItemFn, ItemImpl, ItemMod, ItemTrait, Signature, TraitItem, Type};

/// A function outside tests.
pub(super) struct Function {
    pub(super) name: String,
    pub(super) file: usize,
    /// The type whose `impl` block it stands in.
    pub(super) owner: Option<usize>,
    /// Whether it is a method.
    pub(super) has_receiver: bool,
    /// Whether one of its parameters is `&Engine` or `&mut Engine`.
    pub(super) takes_engine: bool,
}

/// What a crate has of them.
#[derive(Default)]
pub(super) struct Functions {
    pub(super) all: Vec<Function>,
    /// The `impl` blocks: their file and their type.
    pub(super) blocks: Vec<(usize, usize)>,
}

impl Functions {
    /// All functions of the crate, and all `impl` blocks of its types.
    pub(super) fn of(sources: &Sources) -> Self {
        let mut collector =
            Collector { sources, engine: sources.engine(), file: 0, module: 0, owner: None, found: Self::default() };
        for (file, source) in sources.files.iter().enumerate() {
            (collector.file, collector.module) = (file, source.module);
            source.items.iter().for_each(|item| collector.visit_item(item));
        }
        collector.found
    }

    /// The engine's functions: the methods of its `impl` blocks, and what takes it as a parameter outside `carrier/`.
    pub(super) fn of_engine<'a>(&'a self, sources: &'a Sources) -> impl Iterator<Item = &'a Function> {
        let engine = sources.engine();
        self.all.iter().filter(move |function| {
            let method = function.has_receiver && function.owner.is_some() && function.owner == engine;
            method || function.takes_engine && !super::in_carrier(&sources.files[function.file].path)
        })
    }

    /// The type other than the engine that has most methods.
    pub(super) fn largest_type(&self, sources: &Sources) -> Option<(String, usize)> {
        let mut methods: BTreeMap<usize, usize> = BTreeMap::new();
        for function in self.all.iter().filter(|function| function.has_receiver) {
            if let Some(owner) = function.owner.filter(|owner| Some(*owner) != sources.engine()) {
                *methods.entry(owner).or_default() += 1;
            }
        }
        let most = methods.into_iter().max_by_key(|(_, methods)| *methods);
        most.map(|(def, methods)| (sources.defs[def].name.clone(), methods))
    }
}

struct Collector<'a> {
    sources: &'a Sources,
    engine: Option<usize>,
    file: usize,
    module: usize,
    /// The type of the `impl` block around.
    owner: Option<usize>,
    found: Functions,
}

impl Collector<'_> {
    fn add(&mut self, owner: Option<usize>, signature: &Signature) {
        let takes_engine = signature.inputs.iter().any(|input| match input {
            FnArg::Typed(parameter) => self.is_engine_reference(&parameter.ty),
            FnArg::Receiver(_) => false,
        });
        self.found.all.push(Function {
            name: signature.ident.to_string(),
            file: self.file,
            owner,
            has_receiver: signature.receiver().is_some(),
            takes_engine,
        });
    }

    fn is_engine_reference(&self, ty: &Type) -> bool {
        let Type::Reference(reference) = ty else { return false };
        let def = match &*reference.elem {
            Type::Path(path) if path.path.is_ident("Self") => self.owner,
            ty => self.sources.type_def(self.module, ty),
        };
        def.is_some() && def == self.engine
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let around = self.module;
        self.module = self.sources.child(around, &item.ident.to_string()).unwrap_or(around);
        visit::visit_item_mod(self, item);
        self.module = around;
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        let around = self.owner;
        self.owner = self.sources.type_def(self.module, &block.self_ty);
        self.found.blocks.extend(self.owner.map(|owner| (self.file, owner)));
        for item in &block.items {
            if let ImplItem::Fn(function) = item {
                self.add(self.owner, &function.sig);
            }
        }
        visit::visit_item_impl(self, block);
        self.owner = around;
    }

    fn visit_item_trait(&mut self, block: &'ast ItemTrait) {
        let around = self.owner.take();
        for item in &block.items {
            if let TraitItem::Fn(function) = item {
                self.add(None, &function.sig);
            }
        }
        visit::visit_item_trait(self, block);
        self.owner = around;
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        // `Self` means nothing in a function that stands in a method.
        let around = self.owner.take();
        self.add(None, &function.sig);
        visit::visit_item_fn(self, function);
        self.owner = around;
    }

    fn visit_item(&mut self, item: &'ast Item) {
        if !matches!(item, Item::Use(_) | Item::Macro(_)) {
            visit::visit_item(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRATE: &[(&str, &str)] = &[
        (
            "lib.rs",
            "mod engine; mod other; mod carrier; pub use engine::Engine; pub use other::Conn; type Alias<N> = Engine<N>;",
        ),
        (
            "engine.rs",
            "pub struct Engine<N> { a: N, b: u8 }
             impl<N> Engine<N> {
                 fn new() -> Self { Self }
                 fn by_ref(&self) { fn inner(engine: &crate::Engine<u8>) {} }
                 fn by_mut(&mut self, other: &mut Self) {}
                 fn by_value(self: Box<Self>) {}
                 fn of_two(one: &mut Self) {}
                 #[cfg(test)] fn looks(&self) {}
             }
             impl<N> core::fmt::Debug for Engine<N> { fn fmt(&self, f: &mut Formatter) {} }
             #[cfg(test)] mod tests { use super::*; impl Engine<u8> { fn tested(&self) {} } fn free(e: &mut Engine<u8>) {} }",
        ),
        (
            "other.rs",
            "use crate::Engine;
             pub struct Conn;
             impl crate::Alias<u8> { fn aliased(&self) {} }
             impl Conn { fn takes(&self, engine: &mut Engine<u8>) {} fn plain(&self) {} fn make() {} }
             impl Drop for Conn { fn drop(&mut self) {} }
             mod inner { fn helps<N>(engine: &super::Engine<N>, also: &super::Engine<N>) {} fn owns(engine: super::Engine<u8>) {} }
             trait Ask { fn ask(&self, engine: &mut Engine<u8>); }
             mod foreign { struct Engine; impl Engine { fn drives(&self) {} } }",
        ),
        ("carrier/mod.rs", "use crate::Engine; fn asks(engine: &mut Engine<u8>) {} impl Engine<u8> { fn carries(&self) {} }"),
    ];

    #[test]
    fn methods_in_any_impl_and_functions_that_take_the_engine_outside_carrier_are_its() {
        let sources = super::super::read(CRATE);
        let functions = Functions::of(&sources);
        let mut names: Vec<&str> = functions.of_engine(&sources).map(|function| function.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            ["aliased", "ask", "by_mut", "by_ref", "by_value", "carries", "fmt", "helps", "inner", "of_two", "takes"]
        );
    }

    #[test]
    fn blocks_are_counted_inherent_or_not_and_under_any_name() {
        let sources = super::super::read(CRATE);
        let engine = sources.engine().unwrap();
        let blocks = Functions::of(&sources).blocks.into_iter().filter(|(_, of)| *of == engine);
        let files: Vec<&str> = blocks.map(|(file, _)| sources.files[file].path.as_str()).collect();
        assert_eq!(files, ["engine.rs", "engine.rs", "other.rs", "carrier/mod.rs"]);
        assert_eq!(sources.defs[engine].fields, 2);
    }

    #[test]
    fn the_largest_type_is_not_the_engine_and_only_methods_count() {
        let sources = super::super::read(CRATE);
        assert_eq!(Functions::of(&sources).largest_type(&sources), Some(("Conn".to_owned(), 3)));
    }
}
