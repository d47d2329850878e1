//! From needs and facts to ranked candidates, with an explanation
