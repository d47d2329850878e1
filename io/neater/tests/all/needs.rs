//! Needs in words: those about security count, alone and beside parameters, and never for less than
//! those.

use crate::common::{LIMIT, loopback, security};
use neater::tls::TlsVersion;
use neater::{EstablishmentError, Neater, Preconnection, Reason, Role, SecurityParameters, Stack};

/// What stacks are left for these words beside these parameters.
fn stacks(words: &str, security: Option<SecurityParameters>) -> Result<Vec<Stack>, EstablishmentError> {
    let neater = Neater::new().expect("engine");
    let mut pre = neater.preconnection().needs(words).expect("words");
    if let Some(security) = security {
        pre = pre.security(security);
    }
    Ok(pre.compile(Role::Initiate)?.stacks().to_vec())
}

#[tokio::test]
async fn words_decide_where_nothing_else_was_said() {
    assert_eq!(stacks("reliable, cleartext", None).expect("TCP"), [Stack::Tcp]);
    let secure = stacks("reliable", None).expect("the default");
    assert!(secure.contains(&Stack::Tls) && !secure.contains(&Stack::Tcp), "{secure:?}");
    let both = stacks("reliable, opportunistic", None).expect("either");
    assert!(both.contains(&Stack::Tls) && both.contains(&Stack::Tcp), "{both:?}");
}

/// A stack that cannot serve is reported with the reason, and is not among the candidates.
#[tokio::test]
async fn stacks_that_the_security_parameters_rule_out_are_named() {
    let neater = Neater::new().expect("engine");
    let named = |security: SecurityParameters, needs: &str, stack: Stack| {
        let mut pre = neater.preconnection().needs(needs).expect("words").security(security);
        let request = pre.compile(Role::Initiate).expect("another serves");
        assert!(!request.policy().ranked.iter().any(|r| r.stack == stack as u16), "{stack} is no candidate");
        let found = request.policy().excluded.iter().find(|e| e.stack == stack as u16);
        found.unwrap_or_else(|| panic!("{stack} is not named")).to_string()
    };
    let mut alpn = SecurityParameters::new();
    alpn.alpn = vec![b"coap".to_vec()];
    assert!(named(alpn, "datagrams", Stack::Dtls).contains("security"));
    let mut old = SecurityParameters::new();
    old.max_version = TlsVersion::Tls12;
    assert!(named(old, "reliable", Stack::Quic).contains("TLS 1.3"));
}

#[tokio::test]
async fn words_may_ask_for_more_than_the_parameters_and_not_for_less() {
    let stronger = stacks("encrypted", Some(SecurityParameters::opportunistic())).expect("stacks");
    assert!(!stronger.contains(&Stack::Tcp), "{stronger:?}");
    assert!(stacks("cleartext", Some(SecurityParameters::disabled())).is_ok());
    for (words, security) in [
        ("cleartext", SecurityParameters::new()),
        ("opportunistic", SecurityParameters::new()),
        ("cleartext", SecurityParameters::opportunistic()),
        ("encrypted", SecurityParameters::disabled()),
        ("opportunistic", SecurityParameters::disabled()),
    ] {
        let error = stacks(words, Some(security)).expect_err(words);
        assert_eq!(error.reason, Reason::InvalidConfiguration, "{words}: {error}");
    }
    let neater = Neater::new().expect("engine");
    assert!(neater.preconnection().needs("relaible").is_err());
}

#[tokio::test]
async fn a_version_in_words_is_the_least_that_is_spoken() {
    let neater = Neater::new().expect("engine");
    let (client, mut server) = security();
    server.max_version = TlsVersion::Tls12;
    let pre = neater.preconnection().stacks(&[Stack::Tls]);
    let listener = pre.clone().security(server).local(loopback(0)).listen().expect("listening");
    let pre = pre.security(client).remote(loopback(listener.port()));
    let connect = async |pre: Preconnection| tokio::time::timeout(LIMIT, pre.initiate()).await.expect("it ends");
    connect(pre.clone().needs("encrypted").expect("words")).await.expect("TLS 1.2 will do");
    let refused = connect(pre.needs("tls13").expect("words")).await.expect_err("TLS 1.2 was not asked for");
    // The form that a main prints which returns it.
    let printed = format!("{refused:?}");
    assert!(printed.contains("TLS/TCP to 127.0.0.1") && printed.lines().count() > 1, "{printed}");
}

#[tokio::test]
async fn what_was_compiled_for_one_role_is_not_used_for_the_other() {
    let neater = Neater::new().expect("engine");
    let (mut both, server) = security();
    both.server_certificates = server.server_certificates;
    let mut pre = neater.preconnection().stacks(&[Stack::Tls]).security(both).local(loopback(0));
    let initiating = pre.compile(Role::Initiate).expect("a client's");
    let listener = pre.listen().expect("a listener's is made");
    assert_eq!(pre.compile(Role::Listen).expect("a listener's").stacks(), initiating.stacks());
    let to = pre.remote(loopback(listener.port()));
    tokio::time::timeout(LIMIT, to.initiate()).await.expect("it ends").expect("a client's is made");
}

#[tokio::test]
async fn bytes_of_a_datagram_connection_are_an_error_before_anything_is_sent() {
    let neater = Neater::new().expect("engine");
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    peer.set_read_timeout(Some(std::time::Duration::from_millis(200))).expect("set");
    let to = loopback(peer.local_addr().expect("bound").port());
    let needed = neater.preconnection().security(SecurityParameters::disabled()).remote(to);
    let needed = needed.needs("datagrams").expect("words");
    let udp = needed.clone().stacks(&[Stack::Udp]);
    // One that was compiled before the use of byte streams was declared.
    let request = udp.clone().compile(Role::Initiate).expect("a request");
    let given = neater.preconnection().remote(to).request_of(&request);
    for (pre, reason) in
        [(udp, Reason::NoCandidates), (needed, Reason::NoCandidates), (given, Reason::InvalidConfiguration)]
    {
        let error = tokio::time::timeout(LIMIT, pre.connect_bytes()).await.expect("at once");
        let error = error.expect_err("datagrams are no bytes");
        assert_eq!(error.reason, reason, "{error}");
        let said = error.to_string();
        assert!(said.contains("UDP") && said.contains("byte"), "{said}");
    }
    assert!(peer.recv(&mut [0; 2000]).is_err(), "something was sent");
}

#[tokio::test]
async fn a_request_that_was_given_is_not_replaced_by_another_one_for_bytes() {
    let neater = Neater::new().expect("engine");
    let clear = neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    let listener = clear.clone().local(loopback(0)).listen().expect("listening");
    let to = clear.remote(loopback(listener.port()));
    // What the preconnection itself would ask for is not what the request asks for.
    let (client, _) = security();
    let framed = neater::FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 };
    let mut pre = neater.preconnection().stacks(&[Stack::Tls]).security(client).framer(framed);
    let request = pre.compile(Role::Initiate).expect("a request");
    let error = tokio::time::timeout(LIMIT, to.clone().request_of(&request).connect_bytes()).await.expect("at once");
    let error = error.expect_err("messages are no bytes");
    assert_eq!(error.reason, Reason::InvalidConfiguration);
    assert!(error.to_string().contains("framer"), "{error}");
    // One that does is used.
    let mut pre = neater.preconnection().stacks(&[Stack::Tcp]).security(SecurityParameters::disabled());
    let request = pre.compile(Role::Initiate).expect("a request");
    let made = neater.preconnection().remote(loopback(listener.port())).request_of(&request);
    tokio::time::timeout(LIMIT, made.connect_bytes()).await.expect("in time").expect("connected");
    // Nothing was sent in the first place.
    listener.accept().await.expect("one");
    let none = tokio::time::timeout(std::time::Duration::from_millis(200), listener.accept()).await;
    assert!(none.is_err());
}

/// The documentation of `Preconnection::needs` has the words that there are.
#[test]
fn the_words_of_the_documentation_are_those_that_there_are() {
    let rows = neater_property::WORDS.iter().map(|w| format!("| `{}` | {} |\n", w.word, w.help));
    let table = "| word | what it asks for |\n| --- | --- |\n".to_owned() + &rows.collect::<String>();
    assert_eq!(include_str!("../../src/words.md"), table, "src/words.md is to be this table");
}
