//! Answers every message with itself, over every transport at once: `echo PORT CA.pem`. It writes the certificate that
//! clients must trust to the file.
use neater::{FramerSpec, LocalEndpoint, Neater, tls};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let port: u16 = args.next().ok_or("usage: echo PORT CA.pem")?.parse()?;
    let file = args.next().ok_or("usage: echo PORT CA.pem")?;
    let security = neater::self_signed(&["localhost", "127.0.0.1", "::1"])?;
    std::fs::write(&file, tls::certificates_to_pem(&security.server_certificates[0].chain))?;

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
