//! A crate's sources as a tree of modules, in which a path is followed to the file that defines what it names.
//!
//! *Responsible for* parsing, for leaving tests out (`#[cfg(test)]`, `#[test]`), and for following imports and re-exports.
//! *Deliberately not*: types of expressions, visibility, or what a macro expands to. A name that an explicit path takes from
//! a module which invokes a macro, and which is not written there, is taken to be made by that macro.

use crate::workspace::Files;
use std::collections::BTreeMap;
use syn::{Attribute, ImplItem, Item, Meta, Token, TraitItem, Type, UseTree, punctuated::Punctuated};

/// So many imports are followed from one to the next, and no more: a crate that compiles has no endless chain, but what is
/// looked up here by name alone may seem to have one.
const DEPTH: usize = 8;

/// A crate, read.
#[derive(Default)]
pub(super) struct Sources {
    pub(super) files: Vec<SourceFile>,
    /// What is defined outside functions.
    pub(super) defs: Vec<Def>,
    modules: Vec<Module>,
}

/// A file of the crate.
pub(super) struct SourceFile {
    /// Relative to the crate's `src`.
    pub(super) path: String,
    /// Its module.
    pub(super) module: usize,
    /// What is in it, without tests.
    pub(super) items: Vec<Item>,
}

/// A definition.
pub(super) struct Def {
    pub(super) name: String,
    pub(super) file: usize,
    /// Whether it is a struct, an enum, a union, a trait or an alias.
    pub(super) is_type: bool,
    /// The fields of a struct.
    pub(super) fields: usize,
    module: usize,
    /// What it is another name of.
    alias: Option<Vec<String>>,
}

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// A module of the crate.
    Module(usize),
    /// An item.
    Item {
        /// Where it is defined.
        file: usize,
        /// Its definition; `None` if a macro made it.
        def: Option<usize>,
        /// What the path goes on with: a variant, a method, an associated constant.
        rest: Vec<String>,
    },
}

#[derive(Default)]
struct Module {
    file: usize,
    parent: Option<usize>,
    /// A name may stand for a type and for a value.
    names: BTreeMap<String, Vec<Name>>,
    globs: Vec<Vec<String>>,
    /// It invokes a macro where items stand.
    makes_names: bool,
}

enum Name {
    Def(usize),
    Module(usize),
    Import(Vec<String>),
}

/// One name that a `use` brings in, or everything of a module.
pub(super) struct Import {
    pub(super) path: Vec<String>,
    /// The name that it is given; `None`: all names.
    name: Option<String>,
}

impl Sources {
    /// Reads the crate whose `src` folder has these files, beginning with `lib.rs`.
    ///
    /// # Errors
    /// When a file does not parse, or a module has none.
    pub(super) fn read(files: &Files) -> Result<Self, String> {
        let mut sources = Self::default();
        sources.modules.push(Module::default());
        sources.load(files, "lib.rs".to_owned(), "", 0)?;
        Ok(sources)
    }

    fn load(&mut self, files: &Files, path: String, folder: &str, module: usize) -> Result<(), String> {
        let text = files.get(&path).ok_or_else(|| format!("{path}: not there"))?;
        let mut items = syn::parse_file(text).map_err(|e| format!("{path}: does not parse: {e}"))?.items;
        drop_tests(&mut items);
        let file = self.files.len();
        self.files.push(SourceFile { path, module, items: Vec::new() });
        self.modules[module].file = file;
        self.collect(files, &items, file, folder, module)?;
        self.files[file].items = items;
        Ok(())
    }

    fn collect(
        &mut self,
        files: &Files,
        items: &[Item],
        file: usize,
        folder: &str,
        module: usize,
    ) -> Result<(), String> {
        for item in items {
            let (ident, is_type, fields, alias) = match item {
                Item::Mod(inner) => {
                    let name = inner.ident.to_string();
                    let child = self.modules.len();
                    self.modules.push(Module { file, parent: Some(module), ..Module::default() });
                    self.add(module, name.clone(), Name::Module(child));
                    let inside = format!("{folder}{name}/");
                    if let Some((_, items)) = &inner.content {
                        self.collect(files, items, file, &inside, child)?;
                    } else {
                        let flat = format!("{folder}{name}.rs");
                        let path = if files.contains_key(&flat) { flat } else { format!("{inside}mod.rs") };
                        self.load(files, path, &inside, child)?;
                    }
                    continue;
                }
                Item::Use(import) => {
                    for Import { path, name } in imports(import) {
                        match name {
                            Some(name) => self.add(module, name, Name::Import(path)),
                            None => self.modules[module].globs.push(path),
                        }
                    }
                    continue;
                }
                Item::Macro(call) => match &call.ident {
                    Some(ident) => (ident, false, 0, None),
                    None => {
                        self.modules[module].makes_names = true;
                        continue;
                    }
                },
                Item::Struct(i) => (&i.ident, true, i.fields.len(), None),
                Item::Type(i) => (&i.ident, true, 0, path_of(&i.ty)),
                Item::Enum(i) => (&i.ident, true, 0, None),
                Item::Union(i) => (&i.ident, true, 0, None),
                Item::Trait(i) => (&i.ident, true, 0, None),
                Item::Fn(i) => (&i.sig.ident, false, 0, None),
                Item::Const(i) => (&i.ident, false, 0, None),
                Item::Static(i) => (&i.ident, false, 0, None),
                _ => continue,
            };
            let def = self.defs.len();
            self.defs.push(Def { name: ident.to_string(), file, is_type, fields, module, alias });
            self.add(module, ident.to_string(), Name::Def(def));
        }
        Ok(())
    }

    fn add(&mut self, module: usize, name: String, what: Name) {
        self.modules[module].names.entry(name).or_default().push(what);
    }

    /// The module `name` written inside `module`.
    pub(super) fn child(&self, module: usize, name: &str) -> Option<usize> {
        self.modules[module].names.get(name)?.iter().find_map(|name| match name {
            Name::Module(child) => Some(*child),
            _ => None,
        })
    }

    /// The type `Engine` of `engine/`.
    pub(super) fn engine(&self) -> Option<usize> {
        let is_it = |def: &Def| def.name == "Engine" && def.is_type && super::in_engine(&self.files[def.file].path);
        self.defs.iter().position(is_it)
    }

    /// What `path` names when it stands in module `from`: nothing if it leads out of the crate, more than one thing if the
    /// name stands for several.
    pub(super) fn resolve(&self, from: usize, path: &[String]) -> Vec<Named> {
        self.follow(from, path, DEPTH)
    }

    /// The macro `name` that is in scope in `module` because a module around it defines it.
    pub(super) fn resolve_macro(&self, module: usize, name: &str) -> Vec<Named> {
        let path = [name.to_owned()];
        let mut at = Some(module);
        while let Some(module) = at {
            let found = self.resolve(module, &path);
            if !found.is_empty() {
                return found;
            }
            at = self.modules[module].parent;
        }
        Vec::new()
    }

    /// The definition of a type, without references and aliases.
    pub(super) fn type_def(&self, module: usize, ty: &Type) -> Option<usize> {
        self.resolve(module, &path_of(ty)?).iter().find_map(|named| match named {
            Named::Item { def: Some(def), rest, .. } if rest.is_empty() => Some(self.behind_alias(*def)),
            _ => None,
        })
    }

    /// What `def` is another name of, or itself.
    pub(super) fn behind_alias(&self, mut def: usize) -> usize {
        for _ in 0..DEPTH {
            let Def { module, alias: Some(path), .. } = &self.defs[def] else { break };
            let next = self.resolve(*module, path).into_iter().find_map(|named| match named {
                Named::Item { def: Some(next), .. } => Some(next),
                _ => None,
            });
            match next {
                Some(next) => def = next,
                None => break,
            }
        }
        def
    }

    fn follow(&self, from: usize, path: &[String], depth: usize) -> Vec<Named> {
        let (mut module, mut at) = (from, 0);
        while let Some(word) = path.get(at) {
            module = match word.as_str() {
                "crate" if at == 0 => 0,
                "self" if at == 0 => module,
                "super" => match self.modules[module].parent {
                    Some(parent) => parent,
                    None => return Vec::new(),
                },
                _ => break,
            };
            at += 1;
        }
        match path.get(at) {
            Some(name) => self.look_up(module, name, &path[at + 1..], at > 0, depth),
            None => vec![Named::Module(module)],
        }
    }

    /// What `name` is in `module`, which the path names explicitly or not.
    fn look_up(&self, module: usize, name: &str, rest: &[String], explicit: bool, depth: usize) -> Vec<Named> {
        let Some(depth) = depth.checked_sub(1) else { return Vec::new() };
        let here = &self.modules[module];
        let mut found = Vec::new();
        for entry in here.names.get(name).into_iter().flatten() {
            match (entry, rest.split_first()) {
                (Name::Def(def), _) => {
                    found.push(Named::Item { file: self.defs[*def].file, def: Some(*def), rest: rest.to_vec() });
                }
                (Name::Module(child), None) => found.push(Named::Module(*child)),
                (Name::Module(child), Some((next, rest))) => {
                    found.extend(self.look_up(*child, next, rest, true, depth));
                }
                (Name::Import(path), _) => {
                    let path: Vec<String> = path.iter().chain(rest).cloned().collect();
                    found.extend(self.follow(module, &path, depth));
                }
            }
        }
        if here.names.contains_key(name) {
            return found;
        }
        for glob in &here.globs {
            for named in self.follow(module, glob, depth) {
                if let Named::Module(other) = named {
                    found.extend(self.look_up(other, name, rest, false, depth));
                }
            }
        }
        if found.is_empty() && explicit && here.makes_names {
            found.push(Named::Item { file: here.file, def: None, rest: rest.to_vec() });
        }
        found
    }
}

/// The names that a `use` brings in.
pub(super) fn imports(item: &syn::ItemUse) -> Vec<Import> {
    let mut found = Vec::new();
    // A leading `::` leads out of the crate.
    if item.leading_colon.is_none() {
        flatten(&item.tree, &mut Vec::new(), &mut found);
    }
    found
}

fn flatten(tree: &UseTree, prefix: &mut Vec<String>, found: &mut Vec<Import>) {
    let mut import = |ident: &syn::Ident, name: &syn::Ident| {
        let mut path = prefix.clone();
        if ident != "self" || path.is_empty() {
            path.push(ident.to_string());
        }
        let name = if name == "self" { path.last().cloned() } else { Some(name.to_string()) };
        found.push(Import { path, name });
    };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, found);
            prefix.pop();
        }
        UseTree::Name(name) => import(&name.ident, &name.ident),
        UseTree::Rename(rename) => import(&rename.ident, &rename.rename),
        UseTree::Glob(_) => found.push(Import { path: prefix.clone(), name: None }),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, prefix, found)),
    }
}

/// The path of a type, without references; `None` if it is no path into this crate.
fn path_of(ty: &Type) -> Option<Vec<String>> {
    match ty {
        Type::Reference(reference) => path_of(&reference.elem),
        Type::Paren(paren) => path_of(&paren.elem),
        Type::Group(group) => path_of(&group.elem),
        Type::Path(path) if path.qself.is_none() => words(&path.path),
        _ => None,
    }
}

/// The words of a path; `None` if it begins with `::`.
pub(super) fn words(path: &syn::Path) -> Option<Vec<String>> {
    path.leading_colon.is_none().then(|| path.segments.iter().map(|segment| segment.ident.to_string()).collect())
}

fn drop_tests(items: &mut Vec<Item>) {
    items.retain(|item| !is_test(attributes(item)));
    for item in items {
        match item {
            Item::Mod(inner) => {
                if let Some((_, items)) = &mut inner.content {
                    drop_tests(items);
                }
            }
            Item::Impl(block) => block.items.retain(|item| match item {
                ImplItem::Fn(i) => !is_test(&i.attrs),
                ImplItem::Const(i) => !is_test(&i.attrs),
                _ => true,
            }),
            Item::Trait(block) => block.items.retain(|item| match item {
                TraitItem::Fn(i) => !is_test(&i.attrs),
                TraitItem::Const(i) => !is_test(&i.attrs),
                _ => true,
            }),
            _ => {}
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::ExternCrate(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::ForeignMod(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::TraitAlias(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// Whether one of the attributes says that its item is there in tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    fn only_in_tests(condition: &Meta) -> bool {
        match condition {
            Meta::Path(path) => path.is_ident("test"),
            Meta::List(list) if list.path.is_ident("all") => list
                .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
                .is_ok_and(|conditions| conditions.iter().any(only_in_tests)),
            _ => false,
        }
    }
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<Meta>().is_ok_and(|condition| only_in_tests(&condition))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where `path`, standing in `lib.rs`, is defined.
    fn defined(files: &[(&str, &str)], path: &str) -> Vec<String> {
        let sources = super::super::read(files);
        let path: Vec<String> = path.split("::").map(str::to_owned).collect();
        let found = sources.resolve(0, &path).into_iter();
        found
            .map(|named| match named {
                Named::Module(module) => format!("module of {}", sources.files[sources.modules[module].file].path),
                Named::Item { file, rest, .. } => format!("{} {}", sources.files[file].path, rest.join("::")),
            })
            .collect()
    }

    #[test]
    fn re_exports_and_renamed_imports_are_followed_to_the_definition() {
        let files = [
            ("lib.rs", "mod a; pub use a::{self as first, Outer, deep::Inner as Renamed};"),
            ("a.rs", "pub mod deep; pub use deep::*; pub use self::deep::Inner as Outer;"),
            ("a/deep.rs", "pub struct Inner; pub fn act() {}"),
        ];
        for path in ["Renamed", "crate::Outer", "first::Inner", "a::act", "self::a::deep::Inner"] {
            assert_eq!(defined(&files, path), ["a/deep.rs "], "{path}");
        }
        assert_eq!(defined(&files, "Renamed::new"), ["a/deep.rs new"]);
        assert_eq!(defined(&files, "first"), ["module of a.rs"]);
    }

    #[test]
    fn what_leads_out_of_the_crate_or_nowhere_is_not_ours() {
        let files = [("lib.rs", "mod a; pub use other::Thing; pub use a::Lost;"), ("a.rs", "use super::Lost;")];
        for path in ["Thing", "other::Thing", "Vec::new", "super::Thing", "a::Unknown", "Lost"] {
            assert!(defined(&files, path).is_empty(), "{path}");
        }
    }

    #[test]
    fn a_name_that_a_macro_makes_is_of_the_file_that_invokes_it() {
        let files = [("lib.rs", "mod ids; use ids::Key;"), ("ids.rs", "macro_rules! id { () => {} } id!(Key);")];
        assert_eq!(defined(&files, "Key::new"), ["ids.rs new"]);
        assert_eq!(defined(&files, "ids::id"), ["ids.rs "]);
    }

    #[test]
    fn modules_of_tests_are_not_read() {
        let files = [
            ("lib.rs", "#[cfg(test)] mod tests; #[cfg(all(test, unix))] mod unix; #[cfg(not(test))] mod a;"),
            ("a.rs", "#[test] fn works() {} #[cfg(any(test, unix))] fn helps() {}"),
        ];
        let sources = super::super::read(&files);
        assert_eq!(sources.files.len(), 2);
        assert_eq!(sources.defs.iter().map(|def| def.name.as_str()).collect::<Vec<_>>(), ["helps"]);
    }

    #[test]
    fn a_file_that_is_missing_or_does_not_parse_is_named() {
        let read = |text: &str| Sources::read(&[("lib.rs".to_owned(), text.to_owned())].into());
        assert!(read("mod gone;").err().unwrap().starts_with("gone/mod.rs: "));
        assert!(read("fn (").err().unwrap().starts_with("lib.rs: does not parse: "));
    }
}
