//! Retention: what logs keep by entries, bytes and age, against a plain model and wherever the
//! store is cut short.

mod age;
mod cost;
mod crash;
mod limits;
mod model;
mod random;
mod rest;
mod sizes;
