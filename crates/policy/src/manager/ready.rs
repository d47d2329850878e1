//! Ready-made profiles and policies, as they lie in `crates/policy/ready`; `docs/policy.md` tells what each is for.

use super::{Loader, Manager, Report, SourceFile};
use neater_base::WallTime;

/// Every ready-made file.
#[rustfmt::skip]
pub const READY: [SourceFile<'static>; 38] = [
    SourceFile { name: "background.profile", text: include_str!("../../ready/background.profile") },
    SourceFile { name: "bulk-fast-network.policy", text: include_str!("../../ready/bulk-fast-network.policy") },
    SourceFile { name: "bulk-fast-path.policy", text: include_str!("../../ready/bulk-fast-path.policy") },
    SourceFile { name: "bulk.profile", text: include_str!("../../ready/bulk.profile") },
    SourceFile { name: "cheapest-never-metered.policy", text: include_str!("../../ready/cheapest-never-metered.policy") },
    SourceFile { name: "cheapest.profile", text: include_str!("../../ready/cheapest.profile") },
    SourceFile { name: "confidential.profile", text: include_str!("../../ready/confidential.profile") },
    SourceFile { name: "default.profile", text: include_str!("../../ready/default.profile") },
    SourceFile { name: "elephant.policy", text: include_str!("../../ready/elephant.policy") },
    SourceFile { name: "latency-short-network.policy", text: include_str!("../../ready/latency-short-network.policy") },
    SourceFile { name: "latency-short-path.policy", text: include_str!("../../ready/latency-short-path.policy") },
    SourceFile { name: "latency-wired.policy", text: include_str!("../../ready/latency-wired.policy") },
    SourceFile { name: "low-latency.profile", text: include_str!("../../ready/low-latency.profile") },
    SourceFile { name: "mbb-00-points.policy", text: include_str!("../../ready/mbb-00-points.policy") },
    SourceFile { name: "mbb-frequency-0.policy", text: include_str!("../../ready/mbb-frequency-0.policy") },
    SourceFile { name: "mbb-frequency-1.policy", text: include_str!("../../ready/mbb-frequency-1.policy") },
    SourceFile { name: "mbb-frequency-2.policy", text: include_str!("../../ready/mbb-frequency-2.policy") },
    SourceFile { name: "mbb-mode-0.policy", text: include_str!("../../ready/mbb-mode-0.policy") },
    SourceFile { name: "mbb-mode-1.policy", text: include_str!("../../ready/mbb-mode-1.policy") },
    SourceFile { name: "mbb-mode-2.policy", text: include_str!("../../ready/mbb-mode-2.policy") },
    SourceFile { name: "mbb-quality-indicator-0.policy", text: include_str!("../../ready/mbb-quality-indicator-0.policy") },
    SourceFile { name: "mbb-quality-indicator-1.policy", text: include_str!("../../ready/mbb-quality-indicator-1.policy") },
    SourceFile { name: "mbb-quality-indicator-2.policy", text: include_str!("../../ready/mbb-quality-indicator-2.policy") },
    SourceFile { name: "mbb-rsrp-0.policy", text: include_str!("../../ready/mbb-rsrp-0.policy") },
    SourceFile { name: "mbb-rsrp-1.policy", text: include_str!("../../ready/mbb-rsrp-1.policy") },
    SourceFile { name: "mbb-rsrp-2.policy", text: include_str!("../../ready/mbb-rsrp-2.policy") },
    SourceFile { name: "mbb-rsrq-0.policy", text: include_str!("../../ready/mbb-rsrq-0.policy") },
    SourceFile { name: "mbb-rsrq-1.policy", text: include_str!("../../ready/mbb-rsrq-1.policy") },
    SourceFile { name: "mbb-rsrq-2.policy", text: include_str!("../../ready/mbb-rsrq-2.policy") },
    SourceFile { name: "mbb-rssi-0.policy", text: include_str!("../../ready/mbb-rssi-0.policy") },
    SourceFile { name: "mbb-rssi-1.policy", text: include_str!("../../ready/mbb-rssi-1.policy") },
    SourceFile { name: "mbb-rssi-2.policy", text: include_str!("../../ready/mbb-rssi-2.policy") },
    SourceFile { name: "multihomed.profile", text: include_str!("../../ready/multihomed.profile") },
    SourceFile { name: "real-time.profile", text: include_str!("../../ready/real-time.profile") },
    SourceFile { name: "reliable-data.profile", text: include_str!("../../ready/reliable-data.profile") },
    SourceFile { name: "reliable.profile", text: include_str!("../../ready/reliable.profile") },
    SourceFile { name: "scavenger-unmetered.policy", text: include_str!("../../ready/scavenger-unmetered.policy") },
    SourceFile { name: "unreliable.profile", text: include_str!("../../ready/unreliable.profile") },
];

/// Puts the ready-made profiles and policies into `manager`, beneath whatever is loaded from files: those replace ready-made
/// ones of the same uid.
pub fn add_ready(manager: &mut Manager) -> Report {
    Loader::default().load(manager, &READY, &[], WallTime::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manager::{Limits, Node, Requests};
    use neater_base::Rng;
    use serde_json::json;

    fn manager() -> Manager {
        let mut manager = Manager::new(Limits { rows: 100, candidates: 100 });
        let report = add_ready(&mut manager);
        assert_eq!(report.faults, [], "the ready-made files are without fault");
        assert_eq!(report.profiles + report.policies, READY.len());
        manager
    }

    fn know(manager: &mut Manager, name: &str, mut properties: serde_json::Value) {
        properties["interface"] = json!({"value": name, "precedence": 2});
        let node = json!({"uid": name, "root": true, "expire": -1, "properties": properties});
        manager.insert_node(Node::from_json(node, "", "", WallTime::default()).unwrap().0, WallTime::default());
    }

    /// The interface, the transport and the evaluated score of each candidate.
    fn decide(manager: &mut Manager, request: serde_json::Value) -> Vec<(String, String, f64)> {
        let requests = Requests::from_json(&json!([request])).unwrap();
        let decision = manager.decide(&requests, WallTime::default()).unwrap();
        let text = |i, key| decision.get(i, key).map_or(String::new(), |p| p.value.to_string());
        let score = |i| decision.score(i).unwrap().evaluated;
        (0..decision.len()).map(|i| (text(i, "interface"), text(i, "transport"), score(i))).collect()
    }

    fn modem(quality: i64, mode: &str, frequency: i64, rsrp: i64, rsrq: i64, rssi: i64) -> serde_json::Value {
        json!({"quality_indicator": {"value": quality}, "mode": {"value": mode}, "frequency": {"value": frequency},
               "rsrp": {"value": rsrp}, "rsrq": {"value": rsrq}, "rssi": {"value": rssi}})
    }

    /// The points of one modem: the evaluated score beyond what the transport brings.
    fn points(properties: serde_json::Value) -> f64 {
        let mut manager = manager();
        know(&mut manager, "wwan0", properties);
        let found = decide(&mut manager, json!({"transport": {"value": "TCP"}}));
        found.iter().find(|(interface, _, _)| interface == "wwan0").expect("the modem serves").2
    }

    #[test]
    fn the_example_modem_has_64_points() {
        // NEAT, Final Version of Use Cases (2018), section 2.1: 30 + 20 + 3 + 3 + 8.
        assert_eq!(points(modem(2, "4G", 800, -87, -4, -60)), 64.0);
    }

    #[test]
    fn random_modems_have_the_points_of_the_table() {
        let mut rng = Rng::from_number(5);
        let mut pick = |from: i64, to: i64| from + rng.below((to - from + 1) as u64) as i64;
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..20 {
            let (quality, mode) = (pick(0, 2), ["2G", "3G", "4G"][pick(0, 2) as usize]);
            let frequency = [800, 1800, 2600][pick(0, 2) as usize];
            let (rsrp, rsrq, rssi) = (pick(-140, 0), pick(-20, 0), pick(-128, 0));
            // Table 3, by thresholds.
            let step =
                |x: i64, low: i64, high: i64, points: [i64; 3]| points[usize::from(x >= low) + usize::from(x >= high)];
            let mut sum = step(quality, 1, 2, [0, 5, 30]);
            sum += match frequency {
                1800 => 1,
                800 => 3,
                _ => 7,
            };
            sum += match mode {
                "2G" => 1,
                "3G" => 10,
                _ => 20,
            };
            if mode == "4G" {
                sum += step(rsrp, -111, -84, [0, 3, 8]) + step(rsrq, -10, -5, [0, 3, 8]);
            } else {
                sum += step(rssi, -94, -69, [0, 5, 15]);
            }
            assert_eq!(
                points(modem(quality, mode, frequency, rsrp, rsrq, rssi)),
                sum as f64,
                "{mode} {frequency} {rsrp} {rsrq} {rssi}"
            );
            seen.insert(sum);
        }
        assert!(seen.len() > 10, "the modems differ: {seen:?}");
    }

    #[test]
    fn each_profile_leads_to_what_its_name_says() {
        let mut manager = manager();
        know(
            &mut manager,
            "eth0",
            json!({"wired": {"value": true}, "metered": {"value": false}, "measured_rtt": {"value": 200}, "measured_rate": {"value": 1000}}),
        );
        know(
            &mut manager,
            "wwan0",
            json!({"wired": {"value": false}, "metered": {"value": true}, "measured_rtt": {"value": 10}, "measured_rate": {"value": 10}}),
        );
        let mut best = |profile: &str| {
            let (interface, transport, _) = decide(&mut manager, json!({"profile": {"value": profile}})).remove(0);
            (interface, transport)
        };
        let is = |interface: &str, transport: &str| (interface.to_string(), transport.to_string());
        assert_eq!(best("low-latency"), is("wwan0", "SCTP"), "a short path is worth more than a cable");
        assert_eq!(best("bulk"), is("eth0", "SCTP"));
        assert_eq!(best("background"), is("eth0", "SCTP"));
        assert_eq!(best("cheapest"), is("eth0", "SCTP"));
        assert_eq!(best("real-time"), is("wwan0", "QUIC-DATAGRAM"));
        let all = decide(&mut manager, json!({"profile": {"value": "confidential"}}));
        assert!(!all.is_empty() && all.iter().all(|(_, t, _)| t == "QUIC" || t == "TLS"), "{all:?}");
        let all = decide(&mut manager, json!({"profile": {"value": "multihomed"}}));
        assert_eq!(all[0].1, "SCTP", "{all:?}");
    }
}
