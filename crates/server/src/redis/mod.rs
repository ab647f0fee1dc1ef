//! The Redis face.
