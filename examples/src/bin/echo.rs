//! Answers every message with itself, over every transport at once: `echo PORT CA.pem`. It writes the certificate that
//! clients must trust to the file.
use neater::{FramerSpec, LocalEndpoint, Neater, SecurityParameters, tls};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let port: u16 = args.next().ok_or("usage: echo PORT CA.pem")?.parse()?;
    let file = args.next().ok_or("usage: echo PORT CA.pem")?;
    let wall = neater_base::WallTime(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?);
    let mut seed = [0; 32];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut seed)?;
    let identity = tls::self_signed(&["localhost", "127.0.0.1", "::1"], wall, seed);
    std::fs::write(&file, pem(&identity.chain[0]))?;
    let mut security = SecurityParameters::new();
    security.server_certificates = vec![identity];

    let neater = Neater::new()?;
    let framer = FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 };
    let local = LocalEndpoint::new().with_port(port);
    let listener = neater.preconnection().local(local).security(security).framer(framer).listen()?;
    for (stack, addr) in listener.local_addrs() {
        println!("listening: {stack} on {addr}");
    }
    while let Some(connection) = listener.accept().await {
        tokio::spawn(async move {
            while let Ok(Some(message)) = connection.receive().await {
                if connection.send(message.data).await.is_err() {
                    break;
                }
            }
        });
    }
    Ok(())
}

/// DER as PEM.
fn pem(der: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut column = 0;
    for chunk in der.chunks(3) {
        let bits = chunk.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let c = if i <= chunk.len() { ALPHABET[(bits >> (18 - 6 * i)) as usize & 63] } else { b'=' };
            text.push(c as char);
            column += 1;
            if column % 64 == 0 {
                text.push('\n');
            }
        }
    }
    if column % 64 != 0 {
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}
