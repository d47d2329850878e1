//! Message framers over byte streams
