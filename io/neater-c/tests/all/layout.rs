//! The structs of C and of Rust have the same size and the same offsets.

use crate::tools::{STRICT, folder, here, output, skip, which};
use neater_c::challenge::neater_challenge;
use neater_c::connection::neater_receive_options;
use neater_c::context::{neater_context_options, neater_context_statistics};
use neater_c::event::{
    neater_event, neater_event_accepted, neater_event_data, neater_event_error, neater_event_planned,
    neater_event_received, neater_event_sent,
};
use neater_c::info::{neater_connection_statistics, neater_path};
use neater_c::listener::neater_listening;
use neater_c::message::neater_message_info;
use neater_c::race::{neater_candidate, neater_step};
use neater_c::security::neater_certificate;
use std::process::Command;

/// What a struct looks like.
struct Layout {
    name: &'static str,
    size: usize,
    fields: Vec<(&'static str, usize)>,
}

macro_rules! layouts {
    ($($t:ident { $($field:ident),* $(,)? })*) => {
        vec![ $( Layout {
            name: stringify!($t),
            size: size_of::<$t>(),
            fields: vec![ $( (stringify!($field), core::mem::offset_of!($t, $field)) ),* ],
        } ),* ]
    };
}

fn layouts() -> Vec<Layout> {
    layouts! {
        neater_candidate {
            size, stack, fate, started_us, reachable_us, ended_us, reason, doubt, remote, encapsulation_port, reserved
        }
        neater_step { size, at_us, text }
        neater_event { size, kind, reserved, connection, listener, group, user, data }
        neater_event_data { sent, received, accepted, error, planned, reserved }
        neater_event_sent { message_id }
        neater_event_received { message }
        neater_event_accepted { connection, group }
        neater_event_error { error, message_id }
        neater_event_planned { race }
        neater_context_options {
            size, application, policies, without_policies, strict_policies, names_by_system, key_log_from_environment,
            sctp_ecn, reserved, resolv_conf, hosts, qlog_dir, seed, reset_secret, limit_send_buffer, limit_engine_bytes,
            limit_message, limit_untaken, limit_handshakes, limit_connections, names_by, names_user
        }
        neater_context_statistics {
            size, connections, listeners, groups, quic_connections, sctp_associations, bytes_queued, initiated,
            established, failed, attempts, cache_hits, received, refused
        }
        neater_certificate { data, length }
        neater_challenge {
            size, chain, certificates, message, length, scheme, reserved, scheme_name, signature, signature_room,
            signature_length
        }
        neater_message_info {
            size, end_of_message, is_final, early_data, ecn, stream, reserved, payload_protocol, number
        }
        neater_receive_options { size, min_incomplete_length, max_length }
        neater_path {
            size, state, reserved, rtt_us, window, in_flight, sent, lost, delivered, received, local, remote, interface
        }
        neater_connection_statistics {
            size, bytes_sent, bytes_received, messages_sent, messages_received, datagrams_dropped, establishment_us,
            rtt_us, congestion_window, queued, acknowledged, pending
        }
        neater_listening { size, stack, reserved, address }
    }
}

#[test]
fn structs_are_the_same_in_c_and_in_rust() {
    let Some(cc) = which("cc") else { skip!("no C compiler (package gcc)") };
    let layouts = layouts();
    let mut program = String::from("#include <neater.h>\n#include <stdio.h>\nint main(void) {\n");
    for l in &layouts {
        program += &format!("  printf(\"{0} %zu\\n\", sizeof({0}));\n", l.name);
        for (field, _) in &l.fields {
            program += &format!("  printf(\"{0}.{1} %zu\\n\", offsetof({0}, {1}));\n", l.name, field);
        }
    }
    program += "  return 0;\n}\n";
    let source = folder().join("layout.c");
    std::fs::write(&source, program).expect("written");
    let made = folder().join("layout");
    let done = Command::new(cc).args(STRICT).arg("-I").arg(here("include")).arg("-o").arg(&made).arg(&source).output();
    let done = done.expect("a compiler");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let of_c = output(&mut Command::new(made));
    let mut of_rust = String::new();
    for l in &layouts {
        of_rust += &format!("{} {}\n", l.name, l.size);
        for (field, offset) in &l.fields {
            of_rust += &format!("{}.{field} {offset}\n", l.name);
        }
    }
    assert_eq!(of_c, of_rust);
}

#[test]
fn no_struct_and_no_field_is_left_out() {
    let header = std::fs::read_to_string(here("include/neater.h")).expect("the header");
    let mut in_header = std::collections::BTreeMap::new();
    let mut fields = None::<Vec<String>>;
    let mut comment = false;
    for line in header.lines() {
        let line = line.trim();
        if comment || line.starts_with("/*") {
            comment = !line.ends_with("*/");
            continue;
        }
        let opens = ["typedef struct neater_", "typedef union neater_"].iter().any(|t| line.starts_with(t));
        if opens && line.ends_with('{') {
            fields = Some(Vec::new());
        } else if let Some(end) = line.strip_prefix("} ")
            && let Some(found) = fields.take()
        {
            in_header.insert(end.trim_end_matches(';').to_owned(), found);
        } else if let Some(found) = &mut fields
            && let Some(declared) = line.strip_suffix(';')
        {
            let name = declared.rsplit([' ', '*']).next().unwrap_or_default();
            found.push(name.split('[').next().unwrap_or_default().to_owned());
        }
    }
    let measured: std::collections::BTreeMap<_, _> = layouts()
        .into_iter()
        .map(|l| (l.name.to_owned(), l.fields.into_iter().map(|(f, _)| f.to_owned()).collect::<Vec<_>>()))
        .collect();
    assert_eq!(in_header, measured);
}
