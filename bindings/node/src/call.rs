//! Calls that may block: they run on the thread pool of Node, and a promise gets their answer.

use napi::bindgen_prelude::{AsyncTask, ToNapiValue, TypeName};
use napi::{Env, Result, Task, ValueType, sys};

use crate::failure::Failure;
use crate::rows::{Arrays, Rows};

/// A failure or null, and a value or null.
pub struct Answer<T>(Option<Failure>, Option<T>);

impl<T> TypeName for Answer<T> {
    fn type_name() -> &'static str {
        "Answer"
    }

    fn value_type() -> ValueType {
        ValueType::Object
    }
}

impl<T: ToNapiValue> ToNapiValue for Answer<T> {
    unsafe fn to_napi_value(env: sys::napi_env, answer: Self) -> Result<sys::napi_value> {
        // SAFETY: the caller states that `env` is the environment of this thread. The inner call
        // needs no more.
        unsafe { <(Option<Failure>, Option<T>)>::to_napi_value(env, (answer.0, answer.1)) }
    }
}

/// A result that JavaScript has a value for.
pub trait Value: Send + 'static {
    type Js: ToNapiValue;

    fn js(self) -> Self::Js;
}

impl Value for Rows {
    type Js = Arrays;

    fn js(self) -> Arrays {
        self.arrays()
    }
}

impl Value for Vec<Rows> {
    type Js = Vec<Arrays>;

    fn js(self) -> Vec<Arrays> {
        self.into_iter().map(Rows::arrays).collect()
    }
}

impl Value for bool {
    type Js = bool;

    fn js(self) -> bool {
        self
    }
}

type Work<T> = Box<dyn FnOnce() -> std::result::Result<T, Failure> + Send>;

/// A call that a thread of the pool makes.
pub struct Call<T> {
    work: Option<Work<T>>,
}

/// Has a thread of the pool make a call.
pub fn call<T: Value>(
    work: impl FnOnce() -> std::result::Result<T, Failure> + Send + 'static,
) -> AsyncTask<Call<T>> {
    AsyncTask::new(Call { work: Some(Box::new(work)) })
}

impl<T: Value> Task for Call<T> {
    type Output = std::result::Result<T, Failure>;
    type JsValue = Answer<T::Js>;

    fn compute(&mut self) -> Result<Self::Output> {
        // Node computes a task once.
        Ok(self.work.take().map_or_else(|| Err(Failure::invalid("the call was made before")), |work| work()))
    }

    fn resolve(&mut self, _env: Env, output: Self::Output) -> Result<Self::JsValue> {
        Ok(match output {
            Ok(value) => Answer(None, Some(value.js())),
            Err(failure) => Answer(Some(failure), None),
        })
    }
}
