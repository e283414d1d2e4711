//! A part of a configuration document, from which settings are taken one by one.

use crate::wire::problem::Path;
use crate::wire::report::Report;
use serde_json::{Map, Value};

/// An object of a document whose types were checked, and where its problems go.
pub(super) struct Section<'v, 'r, 'a> {
    /// The object.
    pub values: &'v Map<String, Value>,
    /// Where it stands.
    pub base: Path,
    /// Its keys are data, not names of fields.
    pub keyed: bool,
    /// Where its problems go.
    pub report: &'r mut Report<'a>,
}

impl<'v, 'r, 'a> Section<'v, 'r, 'a> {
    /// The document itself.
    pub(super) fn document(values: &'v Map<String, Value>, report: &'r mut Report<'a>) -> Self {
        Self { values, base: Path::root(), keyed: false, report }
    }

    /// The object in the field `name`, if there is one.
    pub(super) fn inside(&mut self, name: &str) -> Option<Section<'v, '_, 'a>> {
        let values = self.values.get(name)?.as_object()?;
        Some(Section { values, base: self.base.field(name), keyed: false, report: self.report })
    }

    /// The same for an object whose keys are data.
    pub(super) fn map(&mut self, name: &str) -> Option<Section<'v, '_, 'a>> {
        self.inside(name).map(|section| Section { keyed: true, ..section })
    }

    /// Where a setting stands.
    pub(super) fn at(&self, name: &str) -> Path {
        if self.keyed { self.base.key(name) } else { self.base.field(name) }
    }

    /// A setting read from its JSON value.
    pub(super) fn check<T>(&mut self, name: &str, read: impl Fn(&Value) -> Result<T, String>, into: &mut T) {
        let Some(value) = self.values.get(name) else { return };
        match read(value) {
            Ok(value) => *into = value,
            Err(why) => self.report.error(&self.at(name), format!("Invalid value: {value}: {why}")),
        }
    }

    /// A setting read from a text.
    pub(super) fn text<T>(&mut self, name: &str, read: impl Fn(&str) -> Result<T, String>, into: &mut T) {
        self.check(name, |v| read(v.as_str().unwrap_or("")), into);
    }

    /// A setting read from a list of texts. It is taken as a whole or not at all.
    pub(super) fn texts<T>(&mut self, name: &str, read: impl Fn(&str) -> Result<T, String>, into: &mut Vec<T>) {
        let Some(list) = self.values.get(name).and_then(Value::as_array) else { return };
        let mut taken = Vec::new();
        for (i, value) in list.iter().enumerate() {
            match read(value.as_str().unwrap_or("")) {
                Ok(value) => taken.push(value),
                Err(why) => {
                    let at = self.at(name).index(i);
                    self.report.error(&at, format!("Invalid value: {value}: {why}"));
                }
            }
        }
        *into = taken;
    }

    /// A boolean.
    pub(super) fn flag(&mut self, name: &str, into: &mut bool) {
        if let Some(value) = self.values.get(name).and_then(Value::as_bool) {
            *into = value;
        }
    }

    /// An integer within bounds.
    pub(super) fn number<T: TryFrom<i64>>(&mut self, name: &str, min: i64, max: i64, into: &mut T) {
        let read = |v: &Value| {
            let value = super::read::within(v.as_i64().unwrap_or(0), min, max)?;
            T::try_from(value).map_err(|_| "is out of range".to_owned())
        };
        self.check(name, read, into);
    }
}
