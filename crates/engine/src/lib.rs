//! Connections, listeners, groups and timers as one machine over Net
