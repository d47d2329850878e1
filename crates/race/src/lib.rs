//! Happy eyeballs over addresses and protocols as a pure state machine
