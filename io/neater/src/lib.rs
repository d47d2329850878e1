//! Transport services: a program says what it needs, neater chooses how
