//! What the tests share: a server of a folder, and a client's security for it.

#![allow(dead_code, reason = "each test file uses some of it")]

use neater::{LocalEndpoint, Neater, SecurityParameters, Stack, Trust};
use neater_http::{Client, Files, HttpVersion, Server, ServerLimits, Summary, Url};
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server of a folder of its own, and a client's security for it.
pub(crate) struct World {
    pub(crate) neater: Neater,
    pub(crate) folder: PathBuf,
    pub(crate) port: u16,
    pub(crate) trust: SecurityParameters,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<Summary>,
}

/// Bytes that follow from a number.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut x = seed | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    (0..length.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(length).collect()
}

impl World {
    pub(crate) fn new(name: &str, limits: ServerLimits, plain: bool) -> Self {
        let folder = std::env::temp_dir().join(format!("neater-http-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("made");
        let neater = Neater::new().expect("engine");
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let identity = neater::tls::self_signed(&["localhost", "127.0.0.1"], neater_base::WallTime(wall), [5; 32]);
        let mut trust = SecurityParameters::new();
        trust.trust = Trust::Only(vec![identity.chain[0].clone()]);
        let mut security = SecurityParameters::new();
        security.server_certificates = vec![identity];
        security.alpn = vec![b"h3".to_vec(), b"h2".to_vec(), b"http/1.1".to_vec()];
        let (security, stacks): (_, &[Stack]) = if plain {
            (SecurityParameters::disabled(), &[Stack::Tcp])
        } else {
            (security, &[Stack::Quic, Stack::Tls])
        };
        let local = LocalEndpoint::from(SocketAddr::from(([127, 0, 0, 1], 0)));
        let preconnection = neater.preconnection().local(local).security(security).stacks(stacks);
        let listener = Server::listen(&preconnection).expect("listening");
        let port = listener.port();
        let server = Server::new(Files::new(&folder).expect("a folder")).limits(limits).alt_svc(port);
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(server.run(vec![listener], async move { drop(stopped.await) }));
        Self { neater, folder, port, trust, stop: Some(stop), server }
    }

    pub(crate) fn put(&self, name: &str, contents: &[u8]) {
        std::fs::write(self.folder.join(name), contents).expect("written");
    }

    pub(crate) fn url(&self, path: &str) -> Url {
        Url::parse(&format!("https://127.0.0.1:{}/{path}", self.port)).expect("a URL")
    }

    pub(crate) fn client(&self, version: Option<HttpVersion>) -> Client {
        let builder = Client::builder(self.neater.clone()).security(self.trust.clone());
        match version {
            Some(v) => builder.version(v).build(),
            None => builder.build(),
        }
    }

    pub(crate) async fn end(mut self) -> Summary {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let summary = (&mut self.server).await.expect("served");
        let _ = std::fs::remove_dir_all(&self.folder);
        summary
    }
}
