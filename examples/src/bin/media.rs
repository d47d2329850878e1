//! A live picture: frames are unreliable messages with a deadline, because one that is late is worth nothing.
//!
//! Shows the needs `unreliable, low-delay`, the lifetime of a message (`msgLifetime`), the event of one that expired, and a
//! limit of the rate (`maxSendRate`) that stands for a network which is too slow.
//!
//! ```text
//! cargo run -p neater-examples --bin media                                       # camera and viewer, by itself
//! cargo run -p neater-examples --bin media -- watch 4433 media.der               # the viewer; writes its certificate
//! cargo run -p neater-examples --bin media -- film localhost:4433 media.der 400  # the camera, at most 400 kbit/s
//! ```
//!
//! By itself it films for a second at full rate, where all frames arrive in time, and for a second at half of that. Frames
//! that would be late expire in the sender then, and the others are in time. For each it prints
//! `400 kbit/s: 52 of 100 frames in time, 0 late; 48 expired in the sender` or similar.
use neater::tls::CertificateDer;
use neater::{Connection, Event, Listener, LocalEndpoint, MessageContext, Neater, Preconnection, RemoteEndpoint};
use neater::{SecurityParameters, SendError, Trust, Value};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const FRAMES: u32 = 100;
/// So many bytes are in a frame, one of which is filmed in each interval: 800 kbit/s.
const SIZE: usize = 1000;
const INTERVAL: Duration = Duration::from_millis(10);
/// A frame that has waited this long is not sent any more.
const LIFETIME: Duration = Duration::from_millis(50);
/// A frame that arrives later than this after it was filmed cannot be shown.
const DEADLINE: Duration = Duration::from_millis(150);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // Without a framer each message is a datagram of its own.
    let media = Neater::new()?.preconnection().needs("unreliable, low-delay")?;
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => {
            let media = media.security(neater::self_signed(&["localhost", "127.0.0.1", "::1"])?);
            let listener = media.clone().local(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).listen()?;
            let camera = media.remote(SocketAddr::from((Ipv4Addr::LOCALHOST, listener.port())));
            let (expired, in_time, late) = show(&camera, &listener, None).await?;
            assert!(in_time > FRAMES / 2 && in_time + late + expired <= FRAMES, "most are in time");
            let (expired, in_time, late) = show(&camera, &listener, Some(400_000)).await?;
            assert!(expired > 0 && in_time + late + expired <= FRAMES, "half the rate is not enough for all");
            assert!(in_time > late, "those that are sent are in time");
            Ok(())
        }
        ["watch", port, file] => {
            let security = neater::self_signed(&["localhost", "127.0.0.1", "::1"])?;
            std::fs::write(file, &security.server_certificates[0].chain[0])?;
            let listener = media.local(LocalEndpoint::new().with_port(port.parse()?)).security(security).listen()?;
            while let Some(connection) = listener.accept().await {
                match watch(connection).await {
                    Ok((in_time, late)) => println!("{in_time} frames in time, {late} late"),
                    Err(e) => println!("{e}"),
                }
            }
            Ok(())
        }
        ["film", viewer, file, kbit] => {
            let mut security = SecurityParameters::new();
            security.trust = Trust::Only(vec![CertificateDer::from(std::fs::read(file)?)]);
            let camera = media.remote(viewer.parse::<RemoteEndpoint>()?).security(security);
            println!("{} frames expired in the sender", film(&camera, Some(kbit.parse::<u64>()? * 1000)).await?);
            Ok(())
        }
        _ => Err("usage: media [watch PORT CERT.der | film HOST:PORT CERT.der KBIT]".into()),
    }
}

/// Films and watches at once. Returns how many frames expired in the sender, were in time, and were late.
async fn show(camera: &Preconnection, viewer: &Listener, rate: Option<u64>) -> Outcome<(u32, u32, u32)> {
    let watching = async { watch(viewer.accept().await.ok_or("the listener has stopped")?).await };
    let (expired, (in_time, late)) = tokio::try_join!(film(camera, rate), watching)?;
    let rate = rate.map_or("full rate".to_owned(), |rate| format!("{} kbit/s", rate / 1000));
    println!("{rate}: {in_time} of {FRAMES} frames in time, {late} late; {expired} expired in the sender");
    Ok((expired, in_time, late))
}

/// Sends a frame in each interval, at most so many bits a second. Returns how many expired before they could be sent.
async fn film(pre: &Preconnection, rate: Option<u64>) -> Outcome<u32> {
    let expired = Arc::new(AtomicU32::new(0));
    let count = expired.clone();
    let pre = pre.clone().on_event(move |event| {
        if matches!(event, Event::Expired(_)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let connection = pre.initiate().await?;
    assert_eq!(connection.get("reliability"), Some(Value::from(false)), "what is lost is not sent again");
    if let Some(rate) = rate {
        connection.set("maxSendRate", rate)?;
    }
    let context = MessageContext::new().lifetime(LIFETIME);
    let mut clock = tokio::time::interval(INTERVAL);
    for number in 0..FRAMES {
        clock.tick().await;
        let mut frame = number.to_be_bytes().to_vec();
        frame.resize(SIZE, 0);
        match connection.send_with(frame, &context).await {
            Ok(_) => {}
            // There was no room for it in the send buffer. No event follows.
            Err(SendError::Expired) => _ = expired.fetch_add(1, Ordering::Relaxed),
            Err(e) => return Err(e.into()),
        }
    }
    connection.close().await?;
    Ok(expired.load(Ordering::Relaxed))
}

/// Receives frames until the camera closes. Returns how many were in time, and how many late.
async fn watch(connection: Connection) -> Outcome<(u32, u32)> {
    let (mut in_time, mut late, mut begin) = (0, 0, None);
    while let Ok(Some(frame)) = connection.receive().await {
        let filmed_after = INTERVAL * u32::from_be_bytes(*frame.first_chunk().ok_or("a frame without a number")?);
        // The first frame that arrives sets the clock.
        let begin = *begin.get_or_insert_with(|| Instant::now() - filmed_after);
        let counter = if begin.elapsed() <= filmed_after + DEADLINE { &mut in_time } else { &mut late };
        *counter += 1;
    }
    Ok((in_time, late))
}
