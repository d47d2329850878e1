//! Values of properties between C and Rust.

use crate::border::Failure;
use crate::status::{neater_status, preference, preference_number};
use neater::Value;

/// A preference by its number.
pub(crate) fn preferred(number: i32) -> Result<Value, Failure> {
    let found = preference(number).map(Value::Preference);
    found.ok_or_else(|| Failure::argument(format!("{number} is no neater_preference")))
}

/// A number: as an Integer where it is one.
pub(crate) fn number(n: f64) -> Value {
    let value = Value::Number(n);
    value.as_integer().map_or(value, Value::Integer)
}

/// There is no property of this name.
pub(crate) fn unknown(name: &str) -> Failure {
    Failure::new(neater_status::NEATER_ERROR_NOT_FOUND, format!("there is no property '{name}'"))
}

fn other(name: &str, value: &Value, what: &str) -> Failure {
    let text = format!("{name} is '{value}', which is no {what}: ask for its text");
    Failure::new(neater_status::NEATER_ERROR_INVALID_VALUE, text)
}

/// What was read as a number.
pub(crate) fn as_number(name: &str, value: Option<Value>) -> Result<f64, Failure> {
    let value = value.ok_or_else(|| unknown(name))?;
    value.as_number().ok_or_else(|| other(name, &value, "number"))
}

/// What was read as a Boolean; a preference is true where it requires.
pub(crate) fn as_boolean(name: &str, value: Option<Value>) -> Result<bool, Failure> {
    let value = value.ok_or_else(|| unknown(name))?;
    value.as_bool().ok_or_else(|| other(name, &value, "Boolean"))
}

/// What was read as a preference.
pub(crate) fn as_preference(name: &str, value: Option<Value>) -> Result<i32, Failure> {
    let value = value.ok_or_else(|| unknown(name))?;
    value.as_preference().map(preference_number).ok_or_else(|| other(name, &value, "preference"))
}

/// What was read as a text.
pub(crate) fn as_text(name: &str, value: Option<Value>) -> Result<String, Failure> {
    value.map(|v| v.to_string()).ok_or_else(|| unknown(name))
}
