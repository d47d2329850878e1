#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| neater_fuzz::race_saved(data));
