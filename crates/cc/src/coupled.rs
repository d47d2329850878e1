//! Windows of several paths of one flow that grow together, so that the flow takes of a shared
//! bottleneck what one flow over one path would.
//!
//! LIA (RFC 6356) and OLIA (Khalili et al., "MPTCP is not Pareto-optimal", 2012;
//! draft-khalili-mptcp-congestion-control-05). Both determine by how much a window grows in
//! congestion avoidance; slow start and decrease are those of the path's own policy. Where that
//! would grow more slowly, it does.

use core::time::Duration;

/// How windows grow together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coupling {
    /// Each for itself.
    #[default]
    None,
    /// Linked increases (RFC 6356 section 3).
    Lia,
    /// Opportunistic linked increases.
    Olia,
}

/// One path of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The congestion window in bytes; 0 for a path that is not used.
    pub window: u64,
    /// The segment size in bytes.
    pub mss: u64,
    /// The smoothed round-trip time.
    pub round_trip: Duration,
    /// The more of what was delivered between the last two losses and since the last one, in bytes:
    /// ℓ of OLIA.
    pub between_losses: u64,
}

impl Part {
    fn rtt(&self) -> f64 {
        self.round_trip.as_secs_f64().max(1e-6)
    }

    /// Window over round-trip time, in segments per second.
    fn rate(&self) -> f64 {
        self.segments() / self.rtt()
    }

    fn segments(&self) -> f64 {
        self.window as f64 / self.mss.max(1) as f64
    }
}

/// All paths of a flow, as they are now.
#[derive(Clone, Debug)]
pub struct Coupled {
    coupling: Coupling,
    parts: Vec<Part>,
}

impl Coupled {
    /// Of these paths.
    #[must_use]
    pub const fn new(coupling: Coupling, parts: Vec<Part>) -> Self {
        Self { coupling, parts }
    }

    /// By how many bytes the window of a path may grow for each byte that is acknowledged on it, in
    /// congestion avoidance. With OLIA it may be below zero.
    #[must_use]
    pub fn growth(&self, index: usize) -> f64 {
        let Some(part) = self.parts.get(index).filter(|p| p.window > 0) else { return 0.0 };
        match self.coupling {
            Coupling::None => f64::INFINITY,
            Coupling::Lia => self.lia(part),
            Coupling::Olia => self.olia(part),
        }
    }

    fn used(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|p| p.window > 0)
    }

    /// Section 3 of RFC 6356: the lesser of alpha over the total window and one over the own one,
    /// in segments; alpha by equation 2.
    fn lia(&self, part: &Part) -> f64 {
        let total: f64 = self.used().map(Part::segments).sum();
        let best = self.used().map(|p| p.segments() / (p.rtt() * p.rtt())).fold(0.0, f64::max);
        let sum: f64 = self.used().map(Part::rate).sum();
        let alpha = total * best / (sum * sum);
        (alpha / total).min(1.0 / part.segments())
    }

    fn olia(&self, part: &Part) -> f64 {
        let sum: f64 = self.used().map(Part::rate).sum();
        let shared = part.segments() / (part.rtt() * part.rtt()) / (sum * sum);
        shared + self.alpha(part) / part.segments()
    }

    /// Windows are moved from the largest to those of the best paths that are not among them.
    fn alpha(&self, part: &Part) -> f64 {
        let quality = |p: &Part| p.between_losses as f64 * p.between_losses as f64 / (p.rtt() * p.rtt());
        let best = self.used().map(quality).fold(0.0, f64::max);
        let largest = self.used().map(|p| p.window).max().unwrap_or(0);
        let is_best = |p: &Part| quality(p) >= best;
        let is_largest = |p: &Part| p.window == largest;
        let n = self.used().count() as f64;
        let collected = self.used().filter(|p| is_best(p) && !is_largest(p)).count() as f64;
        if collected == 0.0 {
            0.0
        } else if is_best(part) && !is_largest(part) {
            1.0 / (n * collected)
        } else if is_largest(part) {
            -1.0 / (n * self.used().filter(|p| is_largest(p)).count() as f64)
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(segments: u64, ms: u64, between_losses: u64) -> Part {
        Part { window: segments * 1000, mss: 1000, round_trip: Duration::from_millis(ms), between_losses }
    }

    fn growth(coupling: Coupling, parts: &[Part]) -> Vec<f64> {
        let coupled = Coupled::new(coupling, parts.to_vec());
        (0..parts.len()).map(|i| coupled.growth(i)).collect()
    }

    #[test]
    fn one_path_alone_grows_like_reno() {
        for coupling in [Coupling::Lia, Coupling::Olia] {
            let grown = growth(coupling, &[part(20, 100, 9)]);
            assert!((grown[0] - 0.05).abs() < 1e-9, "{coupling:?}: {grown:?}");
        }
        assert_eq!(growth(Coupling::None, &[part(20, 100, 0)]), [f64::INFINITY]);
    }

    #[test]
    fn equal_paths_take_together_what_one_does() {
        // RFC 6356: alpha is 1/2 with two equal paths: in a round trip each window grows by a
        // quarter of a segment with LIA.
        let lia = growth(Coupling::Lia, &[part(20, 100, 0), part(20, 100, 0)]);
        assert!((lia[0] * 20.0 - 0.25).abs() < 1e-9 && lia[0] == lia[1], "{lia:?}");
        let olia = growth(Coupling::Olia, &[part(20, 100, 0), part(20, 100, 0)]);
        assert!((olia[0] * 20.0 - 0.25).abs() < 1e-9, "{olia:?}");
    }

    #[test]
    fn no_path_grows_faster_than_alone_and_an_unused_one_does_not_count() {
        let lia = growth(Coupling::Lia, &[part(20, 10, 0), part(200, 1000, 0), part(0, 10, 0)]);
        assert!(lia[0] <= 0.05 && lia[1] <= 0.005 && lia[2] == 0.0, "{lia:?}");
    }

    #[test]
    fn olia_moves_windows_to_the_better_path() {
        let olia = growth(Coupling::Olia, &[part(10, 100, 900_000), part(40, 100, 100_000)]);
        // α is 1/2 for the better one and -1/2 for the one with the largest window.
        let shared = |w: f64| w / 0.01 / (500.0f64 * 500.0);
        assert!((olia[0] - (shared(10.0) + 0.5 / 10.0)).abs() < 1e-9, "{olia:?}");
        assert!((olia[1] - (shared(40.0) - 0.5 / 40.0)).abs() < 1e-9 && olia[1] > -0.02, "{olia:?}");
    }
}
