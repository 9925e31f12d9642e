//! The types of the schema in the form that checking a request needs, read from its own text.

use std::collections::HashSet;

use async_graphql::parser::parse_schema;
use async_graphql::parser::types::{
    BaseType, FieldDefinition, InputValueDefinition, Type, TypeKind, TypeSystemDefinition,
};
use async_graphql::registry::{MetaType, Registry};
use async_graphql::{Name, Positioned};
use foldhash::HashMap;

/// What is known of a field of an object.
#[derive(Debug, Clone)]
pub struct FieldInfo {
    /// The type that it gives.
    pub ty: Type,
    /// The same without list and non-null marks.
    pub output: Name,
    /// Whether it gives a list.
    pub is_list: bool,
    /// Whether it is a connection: it has `first` and its children are a page.
    pub is_page: bool,
    /// The argument whose length is the length of the answer: the first one that is a list.
    pub list_argument: Option<Name>,
    /// Whether it is declared to give everybody the same; see [`super::public`].
    pub is_public: bool,
}

/// What is known of a type that values can be sent for.
#[derive(Debug, Clone)]
pub enum InputInfo {
    /// A leaf that the schema defines itself or that is built in.
    Scalar,
    /// One of some names.
    Enum(HashSet<Name>),
    /// An object of these fields.
    Object(HashMap<Name, InputField>),
}

/// A field of an input object.
#[derive(Debug, Clone)]
pub struct InputField {
    /// Its type, marks included.
    pub ty: Type,
    /// Whether it has a default.
    pub has_default: bool,
}

/// The types of the schema by name.
#[derive(Debug, Default)]
pub struct SchemaIndex {
    objects: HashMap<Name, HashMap<Name, FieldInfo>>,
    inputs: HashMap<Name, InputInfo>,
}

impl SchemaIndex {
    /// Reads the schema's own text.
    ///
    /// # Panics
    /// If the text is no schema, which a start-up cannot go on with.
    #[allow(clippy::expect_used)]
    pub fn new(sdl: &str) -> Self {
        let document = parse_schema(sdl).expect("the server prints its own schema soundly");
        let mut index = Self::default();
        for scalar in ["Int", "Float", "String", "Boolean", "ID"] {
            index.inputs.insert(Name::new(scalar), InputInfo::Scalar);
        }
        for definition in document.definitions {
            if let TypeSystemDefinition::Type(ty) = definition {
                index.add(ty.node.name.node, ty.node.kind);
            }
        }
        index
    }

    /// Takes over which fields are declared to give everybody the same. All others do not.
    pub fn publish(&mut self, registry: &Registry) {
        for (name, ty) in &registry.types {
            let MetaType::Object { fields, .. } = ty else { continue };
            let Some(known) = self.objects.get_mut(name.as_str()) else { continue };
            for field in fields.values() {
                // Of a field that says nothing the library says that it is public and has no age.
                let is_declared = field.cache_control.public && field.cache_control.max_age > 0;
                if let Some(info) = known.get_mut(field.name.as_str()) {
                    info.is_public = is_declared;
                }
            }
        }
    }

    /// The fields of all objects, by object and name.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str, &FieldInfo)> {
        self.objects.iter().flat_map(|(object, fields)| {
            fields.iter().map(move |(name, info)| (object.as_str(), name.as_str(), info))
        })
    }

    fn add(&mut self, name: Name, kind: TypeKind) {
        match kind {
            TypeKind::Object(object) => {
                let fields = object.fields.into_iter().map(|field| field_info(field.node));
                self.objects.insert(name, fields.collect());
            }
            TypeKind::InputObject(object) => {
                let fields = object.fields.into_iter().map(|field| {
                    let InputValueDefinition { name, ty, default_value, .. } = field.node;
                    let has_default = default_value.is_some();
                    (name.node, InputField { ty: ty.node, has_default })
                });
                self.inputs.insert(name, InputInfo::Object(fields.collect()));
            }
            TypeKind::Enum(values) => {
                let values = values.values.into_iter().map(|value| value.node.value.node);
                self.inputs.insert(name, InputInfo::Enum(values.collect()));
            }
            TypeKind::Scalar => {
                self.inputs.insert(name, InputInfo::Scalar);
            }
            TypeKind::Interface(_) | TypeKind::Union(_) => {}
        }
    }

    /// A field of an object type; `None` for introspection and for what does not exist.
    pub fn field(&self, object: &str, field: &str) -> Option<&FieldInfo> {
        self.objects.get(object)?.get(field)
    }

    /// A type that values can be sent for.
    pub fn input(&self, name: &str) -> Option<&InputInfo> {
        self.inputs.get(name)
    }
}

fn field_info(field: FieldDefinition) -> (Name, FieldInfo) {
    let argument = |argument: &&Positioned<InputValueDefinition>| {
        matches!(argument.node.ty.node.base, BaseType::List(_))
    };
    let list_argument = field.arguments.iter().find(argument).map(|a| a.node.name.node.clone());
    let is_page = field.arguments.iter().any(|argument| argument.node.name.node == "first");
    let is_list = matches!(field.ty.node.base, BaseType::List(_));
    let output = base_name(&field.ty.node).clone();
    let ty = field.ty.node;
    let is_public = false;
    (field.name.node, FieldInfo { ty, output, is_list, is_page, list_argument, is_public })
}

fn base_name(ty: &Type) -> &Name {
    match &ty.base {
        BaseType::Named(name) => name,
        BaseType::List(inner) => base_name(inner),
    }
}
