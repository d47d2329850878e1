//! Transport properties.

use crate::{errors, values};
use neater::{Preference, SelectionProperty};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// What is asked of the transport.
#[pyclass(module = "neater", weakref)]
#[derive(Clone, Default)]
pub(crate) struct TransportProperties(pub(crate) neater::TransportProperties);

impl TransportProperties {
    fn prefer_all(&mut self, names: &Bound<'_, PyTuple>, preference: Preference) -> PyResult<()> {
        for name in names {
            let name: String = name.extract()?;
            let property = SelectionProperty::from_name(&name)
                .ok_or_else(|| errors::value(format!("`{name}` is no Selection Property of type Preference")))?;
            self.0.prefer_as(property, preference);
        }
        Ok(())
    }
}

#[pymethods]
impl TransportProperties {
    #[new]
    #[pyo3(signature = (**properties))]
    fn new(properties: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut this = Self::default();
        for (name, value) in properties.into_iter().flatten() {
            this.set(&name.extract::<String>()?, &value)?;
        }
        Ok(this)
    }

    #[staticmethod]
    fn parse(words: &str) -> PyResult<Self> {
        Ok(Self(neater::TransportProperties::parse(words).map_err(errors::value)?.properties))
    }

    fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.set(name, values::value(value)?).map_err(|e| errors::set(&e))
    }

    fn get(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        let value = self.0.get(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        values::object(py, value)
    }

    fn __setitem__(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set(name, value)
    }

    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        self.get(py, name)
    }

    fn items(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, Py<PyAny>)>> {
        self.0.iter().map(|(name, value)| Ok((name, values::object(py, value)?))).collect()
    }

    #[pyo3(signature = (*names))]
    fn require(&mut self, names: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.prefer_all(names, Preference::Require)
    }

    #[pyo3(signature = (*names))]
    fn prefer(&mut self, names: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.prefer_all(names, Preference::Prefer)
    }

    #[pyo3(signature = (*names))]
    fn no_preference(&mut self, names: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.prefer_all(names, Preference::NoPreference)
    }

    #[pyo3(signature = (*names))]
    fn avoid(&mut self, names: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.prefer_all(names, Preference::Avoid)
    }

    #[pyo3(signature = (*names))]
    fn prohibit(&mut self, names: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.prefer_all(names, Preference::Prohibit)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.borrow().0.iter().eq(self.0.iter()))
    }

    fn __repr__(&self) -> String {
        let all: Vec<_> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("<TransportProperties {}>", all.join(", "))
    }
}

/// The words of `needs`, and what each asks for.
#[pyfunction]
pub(crate) fn needs_words() -> Vec<(&'static str, &'static str)> {
    neater_property::WORDS.iter().map(|w| (w.word, w.help)).collect()
}

/// What setting a property does in this version; None if there is none of that name.
#[pyfunction]
pub(crate) fn property_effect(name: &str) -> Option<String> {
    neater_property::lookup(name).map(|p| p.effect.to_string())
}
