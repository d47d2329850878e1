//! Experiments and figures
