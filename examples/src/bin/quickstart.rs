//! Says hello over whatever transport is best: `quickstart HOST:PORT [CA.pem]`.
use neater::{FramerSpec, Neater, RemoteEndpoint, SecurityParameters, Trust, tls};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let server: RemoteEndpoint = args.next().ok_or("usage: quickstart HOST:PORT [CA.pem]")?.parse()?;
    let mut security = SecurityParameters::new(); // encrypted and authenticated, or not at all
    if let Some(ca) = args.next() {
        security.trust = Trust::Only(tls::certificates_from_pem(&std::fs::read(ca)?)?);
    }
    let framer = FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 };

    let neater = Neater::new()?;
    let pre = neater.preconnection().remote(server).needs("reliable, low-delay")?.security(security).framer(framer);
    let connection = pre.initiate().await?;
    println!("carried by {}", connection.stack().ok_or("not established")?);
    connection.send("hello").await?;
    if let Some(answer) = connection.receive().await? {
        println!("{}", String::from_utf8_lossy(&answer));
    }
    Ok(connection.close().await?)
}
