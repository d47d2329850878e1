#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| neater_fuzz::framing_lines(data));
