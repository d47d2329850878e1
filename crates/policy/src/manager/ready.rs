//! Ready-made profiles and policies, as they lie in `crates/policy/ready`; `docs/policy.md`
//! describes each.

use super::{Loader, Manager, Report, SourceFile};
use neater_base::WallTime;

/// Every ready-made file.
#[rustfmt::skip]
pub const READY: [SourceFile<'static>; 39] = [
    SourceFile { name: "background.profile", text: include_str!("../../ready/background.profile") },
    SourceFile { name: "bulk-fast-network.policy", text: include_str!("../../ready/bulk-fast-network.policy") },
    SourceFile { name: "bulk-fast-path.policy", text: include_str!("../../ready/bulk-fast-path.policy") },
    SourceFile { name: "bulk.profile", text: include_str!("../../ready/bulk.profile") },
    SourceFile { name: "cheapest-never-metered.policy", text: include_str!("../../ready/cheapest-never-metered.policy") },
    SourceFile { name: "cheapest.profile", text: include_str!("../../ready/cheapest.profile") },
    SourceFile { name: "confidential.profile", text: include_str!("../../ready/confidential.profile") },
    SourceFile { name: "default.profile", text: include_str!("../../ready/default.profile") },
    SourceFile { name: "elephant-bytes.policy", text: include_str!("../../ready/elephant-bytes.policy") },
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

/// Policy 2 of NEAT's trials with mobile broadband (Final Version of Use Cases, 2018, section
/// 2.1.3): as the ready-made `mbb-*`, whose places these take where they are loaded, but
/// frequencies bring no points.
#[rustfmt::skip]
pub const MBB_POLICY_2: [SourceFile<'static>; 3] = [
    SourceFile { name: "mbb-frequency-0.policy", text: include_str!("../../ready/mbb-policy-2/mbb-frequency-0.policy") },
    SourceFile { name: "mbb-frequency-1.policy", text: include_str!("../../ready/mbb-policy-2/mbb-frequency-1.policy") },
    SourceFile { name: "mbb-frequency-2.policy", text: include_str!("../../ready/mbb-policy-2/mbb-frequency-2.policy") },
];

/// Policy 3 of the same trials (table 8): as policy 2, with other points for the quality of the
/// signal.
#[rustfmt::skip]
pub const MBB_POLICY_3: [SourceFile<'static>; 12] = [
    SourceFile { name: "mbb-frequency-0.policy", text: include_str!("../../ready/mbb-policy-3/mbb-frequency-0.policy") },
    SourceFile { name: "mbb-frequency-1.policy", text: include_str!("../../ready/mbb-policy-3/mbb-frequency-1.policy") },
    SourceFile { name: "mbb-frequency-2.policy", text: include_str!("../../ready/mbb-policy-3/mbb-frequency-2.policy") },
    SourceFile { name: "mbb-rsrp-0.policy", text: include_str!("../../ready/mbb-policy-3/mbb-rsrp-0.policy") },
    SourceFile { name: "mbb-rsrp-1.policy", text: include_str!("../../ready/mbb-policy-3/mbb-rsrp-1.policy") },
    SourceFile { name: "mbb-rsrp-2.policy", text: include_str!("../../ready/mbb-policy-3/mbb-rsrp-2.policy") },
    SourceFile { name: "mbb-rsrq-0.policy", text: include_str!("../../ready/mbb-policy-3/mbb-rsrq-0.policy") },
    SourceFile { name: "mbb-rsrq-1.policy", text: include_str!("../../ready/mbb-policy-3/mbb-rsrq-1.policy") },
    SourceFile { name: "mbb-rsrq-2.policy", text: include_str!("../../ready/mbb-policy-3/mbb-rsrq-2.policy") },
    SourceFile { name: "mbb-rssi-0.policy", text: include_str!("../../ready/mbb-policy-3/mbb-rssi-0.policy") },
    SourceFile { name: "mbb-rssi-1.policy", text: include_str!("../../ready/mbb-policy-3/mbb-rssi-1.policy") },
    SourceFile { name: "mbb-rssi-2.policy", text: include_str!("../../ready/mbb-policy-3/mbb-rssi-2.policy") },
];

/// Puts the ready-made profiles and policies into `manager`, beneath whatever is loaded from files:
/// those replace ready-made ones of the same uid.
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

    /// The points of one modem by policy 1, 2 or 3: the evaluated score beyond what the transport
    /// brings.
    fn points_by(policy: u8, properties: serde_json::Value) -> f64 {
        let mut manager = manager();
        let table: &[SourceFile<'_>] = match policy {
            2 => &MBB_POLICY_2,
            3 => &MBB_POLICY_3,
            _ => &[],
        };
        let before = manager.policies().rules().len();
        let report = Loader::default().load(&mut manager, table, &[], WallTime::default());
        assert_eq!((report.faults, report.policies), (vec![], before), "each takes the place of a ready-made one");
        know(&mut manager, "wwan0", properties);
        let found = decide(&mut manager, json!({"transport": {"value": "TCP"}}));
        found.iter().find(|(interface, _, _)| interface == "wwan0").expect("the modem serves").2
    }

    fn points(properties: serde_json::Value) -> f64 {
        points_by(1, properties)
    }

    #[test]
    fn the_example_modem_has_64_points() {
        // NEAT, Final Version of Use Cases (2018), section 2.1: 30 + 20 + 3 + 3 + 8.
        assert_eq!(points(modem(2, "4G", 800, -87, -4, -60)), 64.0);
        // Without the frequency, and by table 8: 30 + 20 + 10 + 10.
        assert_eq!(points_by(2, modem(2, "4G", 800, -87, -4, -60)), 61.0);
        assert_eq!(points_by(3, modem(2, "4G", 800, -87, -4, -60)), 70.0);
    }

    #[test]
    fn values_between_whole_numbers_fall_into_no_hole() {
        let example = |key: &str, value: f64, mode: &str| {
            let mut modem = modem(2, mode, 800, -87, -4, -60);
            modem[key] = json!({"value": value});
            points(modem)
        };
        // As the whole number below: 3 for what is short of 8, 0 for what is short of 3.
        for (key, mode, falls) in [
            ("rsrp", "4G", [(-83.5, 69.0), (-84.5, 64.0), (-110.5, 64.0), (-111.5, 61.0)]),
            ("rsrq", "4G", [(-4.5, 64.0), (-5.5, 59.0), (-9.5, 59.0), (-10.5, 56.0)]),
            ("rssi", "3G", [(-68.5, 58.0), (-69.5, 48.0), (-93.5, 48.0), (-94.5, 43.0)]),
        ] {
            for (value, due) in falls {
                assert_eq!(example(key, value, mode), due, "{key} {value}");
            }
        }
    }

    /// The points of a value by the document's own rows: the last row that it has reached.
    fn row(x: i64, rows: [(i64, i64); 3]) -> i64 {
        rows.into_iter().rfind(|(from, _)| x >= *from).expect("no table begins above it").1
    }

    #[test]
    fn random_modems_and_those_on_the_borders_have_the_points_of_the_tables() {
        let mut rng = Rng::from_number(5);
        let mut pick = |from: i64, to: i64| from + rng.below((to - from + 1) as u64) as i64;
        let mut seen = std::collections::BTreeSet::new();
        let borders =
            [-140, -112, -111, -103, -102, -95, -94, -84, -83, -70, -69, -20, -12, -11, -10, -8, -7, -6, -5, 0];
        for i in 0..60 {
            let (quality, mode) = (pick(0, 2), ["2G", "3G", "4G"][pick(0, 2) as usize]);
            let frequency = [800, 1800, 2600][pick(0, 2) as usize];
            let near = |low: i64, x: i64| if i < 20 { x } else { borders[(i as usize + 7) % 20].max(low) };
            let (rsrp, rsrq, rssi) = (near(-140, pick(-140, 0)), near(-20, pick(-20, 0)), near(-128, pick(-128, 0)));
            let modem = modem(quality, mode, frequency, rsrp, rsrq, rssi);
            for policy in 1..=3 {
                // Tables 3 and 8.
                let (of_rsrp, of_rsrq, of_rssi) = if policy == 3 {
                    (
                        [(-140, 0), (-111, 10), (-102, 10)],
                        [(-20, 0), (-11, 5), (-7, 10)],
                        [(-128, 0), (-94, 15), (-69, 20)],
                    )
                } else {
                    ([(-140, 0), (-111, 3), (-84, 8)], [(-20, 0), (-10, 3), (-5, 8)], [(-128, 0), (-94, 5), (-69, 15)])
                };
                let mut sum = row(quality, [(0, 0), (1, 5), (2, 30)]);
                sum += match frequency {
                    _ if policy > 1 => 0,
                    1800 => 1,
                    800 => 3,
                    _ => 7,
                };
                sum += match mode {
                    "2G" => 1 + row(rssi, of_rssi),
                    "3G" => 10 + row(rssi, of_rssi),
                    _ => 20 + row(rsrp, of_rsrp) + row(rsrq, of_rsrq),
                };
                let found = points_by(policy, modem.clone());
                assert_eq!(found, sum as f64, "policy {policy}: {mode} {frequency} {rsrp} {rsrq} {rssi}");
                seen.insert(sum);
            }
        }
        assert!(seen.len() > 20, "the modems differ: {seen:?}");
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
        for profile in ["reliable", "reliable-data"] {
            let all = decide(&mut manager, json!({"profile": {"value": profile}}));
            assert!(
                all.len() >= 3 && all.iter().all(|(_, t, _)| ["SCTP", "QUIC", "TCP"].contains(&t.as_str())),
                "{all:?}"
            );
        }
        // What a program states of its flow, in our words and in NEAT's.
        for key in ["flow_size", "flow_size_bytes"] {
            let mut marked = |bytes: u64| {
                let request = json!([{"transport": {"value": "TCP"}, key: {"value": bytes}}]);
                let decision = manager.decide(&Requests::from_json(&request).unwrap(), WallTime::default()).unwrap();
                decision.get(0, "flow_class").map(|p| p.value.to_string())
            };
            assert_eq!((marked(50_000_000).as_deref(), marked(5_000_000)), (Some("elephant"), None), "{key}");
        }
    }
}
