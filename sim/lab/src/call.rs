//! A call of F3's audio conference: small packets at a steady pace over whatever datagrams neater finds, echoed by the server,
//! and how many came back in time.
//!
//! The server is standard Rust, and knows nothing of neater.

use neater::{Neater, Preconnection, RemoteEndpoint, SecurityParameters, Stack};
use serde_json::{Value, json};
use std::io;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// G.711 in packets of 20 ms (RFC 3551 section 4.5.14), behind a header of RTP's size (RFC 3550 section 5.1).
const PACKET: usize = 160 + 12;
const PACE: Duration = Duration::from_millis(20);
/// How long the last packet's echo is waited for.
const TAIL: Duration = Duration::from_secs(1);

/// What a call asks for.
#[derive(Debug, clap::Args)]
pub struct CallArgs {
    /// Echo what comes to this address instead of calling.
    #[arg(long, value_name = "IP:PORT")]
    echo: Option<std::net::SocketAddr>,
    /// Whom to call.
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "echo")]
    to: Option<String>,
    /// Seconds of speech.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// An echo counts that is there within so many milliseconds.
    #[arg(long, default_value_t = 300)]
    within_ms: u64,
    /// What of the packets must come back in time, 0 to 1.
    #[arg(long, default_value_t = 0.97)]
    answered: f64,
    /// Needs, as `neater get --needs` takes them.
    #[arg(long)]
    needs: Option<String>,
    /// A property for policies.
    #[arg(long, value_name = "NAME=VALUE")]
    property: Option<String>,
    /// No policies.
    #[arg(long)]
    no_policy: bool,
}

/// Echoes, or calls; the line that is printed says how the call went. True if it went well.
///
/// # Errors
/// The socket of the server, or the event loop, cannot be had; the arguments make no sense.
pub fn run(args: &CallArgs) -> io::Result<bool> {
    if let Some(address) = args.echo {
        let socket = UdpSocket::bind(address)?;
        println!("{}", json!({"ready": true}));
        let mut packet = [0; 2048];
        loop {
            let (len, from) = socket.recv_from(&mut packet)?;
            let _ = socket.send_to(&packet[..len], from);
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let line = runtime.block_on(call(args))?;
    println!("{line}");
    Ok(line["well"] == true)
}

async fn call(args: &CallArgs) -> io::Result<Value> {
    let bad = |e: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidInput, e.to_string());
    let builder = Neater::builder().application("neater-call");
    let neater = if args.no_policy { builder.without_policies() } else { builder }.build()?;
    let to: RemoteEndpoint = args.to.as_deref().unwrap_or_default().parse().map_err(|e| bad(&e))?;
    let needs = format!("datagrams,{}", args.needs.as_deref().unwrap_or_default());
    let call = Preconnection::new(&neater).remote(to).stacks(&[Stack::Udp]).needs(needs.trim_end_matches(','));
    let mut call = call.map_err(|e| bad(&e))?.security(SecurityParameters::disabled());
    if let Some((name, value)) = args.property.as_deref().and_then(|p| p.split_once('=')) {
        call = call.policy_property(name, value);
    }
    let connection = match call.initiate().await {
        Ok(connection) => connection,
        Err(e) => return Ok(json!({"well": false, "connected": false, "why": e.to_string()})),
    };
    let packets = u64::from(args.seconds) * 50;
    let (start, within) = (Instant::now(), Duration::from_millis(args.within_ms));
    let due = |n: u64| start + PACE * u32::try_from(n).unwrap_or(u32::MAX);
    let (mut sent, mut back, mut in_time, mut worst) = (0, 0_u64, 0_u64, Duration::ZERO);
    let end = due(packets) + TAIL;
    while Instant::now() < end && back < packets {
        let next = if sent < packets { due(sent) } else { end };
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => if sent < packets {
                let mut packet = vec![0; PACKET];
                packet[..8].copy_from_slice(&sent.to_be_bytes());
                sent += 1;
                // Nobody there, perhaps: the next one is sent all the same, as a telephone would.
                let _ = connection.send(packet).await;
            },
            message = connection.receive() => match message {
                Ok(Some(message)) => {
                    let number = message.data.first_chunk().map(|b| u64::from_be_bytes(*b));
                    let late = number.map(|n| Instant::now().saturating_duration_since(due(n)));
                    back += 1;
                    in_time += u64::from(late.is_some_and(|l| l <= within));
                    worst = worst.max(late.unwrap_or_default());
                }
                Ok(None) | Err(_) => break,
            },
        }
    }
    let part = in_time as f64 / packets as f64;
    let well = part >= args.answered;
    Ok(json!({"well": well, "connected": true, "sent": sent, "back": back, "in_time": in_time,
        "worst_ms": worst.as_secs_f64() * 1000.0}))
}
