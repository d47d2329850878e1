//! Long simulations: the tests of `neater-testkit` that take seeds, with more of them.

use std::process::Command;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    seeds: u64,
}

impl Request {
    /// `--seeds N`, by default 300.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        match args {
            [] => Ok(Self { seeds: 300 }),
            [flag, n] if flag == "--seeds" => match n.parse() {
                Ok(seeds) if (1..=10_000_000).contains(&seeds) => Ok(Self { seeds }),
                _ => Err(format!("--seeds takes a number from 1 to 10000000, not `{n}`")),
            },
            other => Err(format!("sim takes --seeds N and nothing else, not `{}`", other.join(" "))),
        }
    }
}

/// So many seeds of establishment are run at least: they take milliseconds each, and what they show is promised for so many.
const ESTABLISHMENT: u64 = 1000;

/// Runs them. A failing seed prints the command that replays it.
pub(crate) fn chore(request: &Request) -> Result<bool, String> {
    let establishment = request.seeds.max(ESTABLISHMENT);
    // Whatever comes of the first, the others are run.
    let (first, others) = (run(&["establishment::"], establishment)?, run(&["chaos::", "soak::"], request.seeds)?);
    Ok(first && others)
}

fn run(modules: &[&str], seeds: u64) -> Result<bool, String> {
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        // With the features that all tests have (`./test`), so that nothing is built again for it.
        .args(["test", "--workspace", "--features", "neater/hyper", "--locked"])
        .args(["--test", "all", "--"])
        .args(modules)
        .env("SIM_SEEDS", seeds.to_string())
        .status()
        .map_err(|e| format!("cargo cannot be run: {e}"))?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_number_or_an_error_that_says_so() {
        let parse = |s: &str| Request::parse(&s.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse(""), Ok(Request { seeds: 300 }));
        assert_eq!(parse("--seeds 1000"), Ok(Request { seeds: 1000 }));
        assert!(parse("--seeds many").is_err_and(|e| e.contains("many")));
        assert!(parse("--seeds 0").is_err());
        assert!(parse("--what 1").is_err_and(|e| e.contains("--what")));
    }
}
