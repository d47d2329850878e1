//! Properties: what a program may ask of a transport, with preferences, precedence and score
