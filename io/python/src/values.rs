//! Values of properties, both ways.

use neater::{Preference, Value};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};

/// The word for a preference, as `neater.Preference` has it.
pub(crate) const fn word(of: Preference) -> &'static str {
    match of {
        Preference::Prohibit => "prohibit",
        Preference::Avoid => "avoid",
        Preference::NoPreference => "no-preference",
        Preference::Prefer => "prefer",
        Preference::Require => "require",
    }
}

/// A value of Python's, which the property then judges.
pub(crate) fn value(of: &Bound<'_, PyAny>) -> PyResult<Value> {
    if of.is_instance_of::<PyBool>() {
        return Ok(Value::Bool(of.extract()?));
    }
    if of.is_instance_of::<PyInt>() {
        let n =
            of.extract::<u64>().map_err(|_| PyValueError::new_err(format!("{of} is no integer from 0 to 2**64-1")))?;
        return Ok(Value::Integer(n));
    }
    if of.is_instance_of::<PyFloat>() {
        return Ok(Value::Number(of.extract()?));
    }
    if of.is_instance_of::<PyString>() {
        return Ok(Value::Text(of.extract()?));
    }
    if let Ok(seconds) = of.call_method0("total_seconds") {
        return Ok(Value::Number(seconds.extract()?));
    }
    if let Ok(names) = of.cast::<PyDict>() {
        let mut set = Vec::new();
        for (name, preference) in names {
            let text: String = preference.extract()?;
            let preference = Preference::from_text(&text).ok_or_else(|| {
                PyValueError::new_err(format!("`{text}` is no preference: require, prefer, avoid..."))
            })?;
            set.push((preference, name.extract()?));
        }
        return Ok(Value::Set(set));
    }
    Err(PyTypeError::new_err(format!(
        "a property is a bool, int, float, str, timedelta or dict of preferences by name, not {}",
        of.get_type()
    )))
}

/// A value for Python.
pub(crate) fn object(py: Python<'_>, of: Value) -> PyResult<Py<PyAny>> {
    Ok(match of {
        Value::Preference(p) => word(p).into_pyobject(py)?.into_any().unbind(),
        Value::Bool(b) => PyBool::new(py, b).to_owned().into_any().unbind(),
        Value::Integer(n) => n.into_pyobject(py)?.into_any().unbind(),
        Value::Number(n) => n.into_pyobject(py)?.into_any().unbind(),
        Value::Text(t) => t.into_pyobject(py)?.into_any().unbind(),
        Value::Set(items) => {
            let names = PyDict::new(py);
            for (preference, name) in items {
                names.set_item(name, word(preference))?;
            }
            names.into_any().unbind()
        }
    })
}

/// JSON as objects of Python.
pub(crate) fn json(py: Python<'_>, of: &serde_json::Value) -> PyResult<Py<PyAny>> {
    py.import("json")?.call_method1("loads", (of.to_string(),)).map(Bound::unbind)
}
