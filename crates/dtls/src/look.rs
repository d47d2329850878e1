//! What a datagram shows of itself before there are keys: enough to find out whose it is.

/// Length of the header of a plaintext record (RFC 6347 section 4.1).
const RECORD_HEADER: usize = 13;
/// Length of the header of a handshake message or a fragment of one (RFC 6347 section 4.2.2).
const MESSAGE_HEADER: usize = 12;
/// Content types of records in the clear, and of protected ones in 1.2 (RFC 6347 section 4.1).
const CHANGE_CIPHER_SPEC: u8 = 20;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// The types of handshake messages (RFC 8446 section 4, RFC 6347 section 4.2.2).
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
/// The low bits of the epoch of handshake messages in 1.3 (RFC 9147 section 4.1): 2.
const HANDSHAKE_EPOCH: u8 = 2;

/// The random of a ClientHello, by which the hellos of one handshake are distinguished from those
/// of others: the answer to a request to prove the address repeats it (RFC 6347 section 4.2.1, RFC
/// 8446 section 4.1.2).
pub type HelloRandom = [u8; 32];

/// What a datagram for a server begins with, as far as can be seen from outside. Nothing of it is
/// authentic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A ClientHello or its first fragment, with its random. Only for this should a server set
    /// anything up.
    Hello {
        /// The random.
        random: HelloRandom,
        /// The record holds all of it.
        whole: bool,
    },
    /// A later fragment of a ClientHello: of an unknown one.
    HelloFragment,
    /// Another record in the clear: of a handshake that has no keys yet, or a stranger's.
    Clear,
    /// A protected record that may belong to a handshake: in 1.2 any but application data, in 1.3
    /// one of epoch 2.
    Protected,
    /// A record of application data, or nothing of DTLS.
    Data,
}

/// Looks at the first record of a datagram from a client. Takes anything.
#[must_use]
pub fn look(datagram: &[u8]) -> Look {
    match *datagram {
        // RFC 9147 section 4: 001CSLEE.
        [first, ..] if first & 0xe0 == 0x20 && first & 3 == HANDSHAKE_EPOCH => Look::Protected,
        [first, ..] if first & 0xe0 == 0x20 => Look::Data,
        [kind, 0xfe, _, 0, 0, ..] if kind >= CHANGE_CIPHER_SPEC => match message(datagram) {
            // The version and the random come first.
            Some(Message { kind: CLIENT_HELLO, offset: 0, length, body: [_, _, random @ ..] }) => {
                let whole = random.len() + 2 >= length;
                random.first_chunk().map_or(Look::Clear, |random| Look::Hello { random: *random, whole })
            }
            Some(Message { kind: CLIENT_HELLO, offset: 1.., .. }) => Look::HelloFragment,
            _ => Look::Clear,
        },
        [kind, 0xfe, ..] if kind >= CHANGE_CIPHER_SPEC && kind != DATA => Look::Protected,
        _ => Look::Data,
    }
}

/// The first fragment of a handshake message in a record in the clear.
struct Message<'a> {
    kind: u8,
    /// Length of the whole message's body.
    length: usize,
    /// Where in it this fragment begins.
    offset: usize,
    /// The fragment.
    body: &'a [u8],
}

fn message(datagram: &[u8]) -> Option<Message<'_>> {
    let [HANDSHAKE, 0xfe, _, 0, 0, ..] = datagram else { return None };
    let record = usize::from(u16::from_be_bytes([*datagram.get(11)?, *datagram.get(12)?]));
    let message = datagram.get(RECORD_HEADER..RECORD_HEADER + record)?;
    let (header, body) = message.split_at_checked(MESSAGE_HEADER)?;
    let number = |at: usize| header[at..at + 3].iter().fold(0, |v, b| v << 8 | usize::from(*b));
    Some(Message { kind: header[0], length: number(1), offset: number(6), body: body.get(..number(9))? })
}

/// The random that makes a ServerHello a HelloRetryRequest (RFC 8446 section 4.1.3): SHA-256 of
/// "HelloRetryRequest".
const RETRY_RANDOM: [u8; 8] = [0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11];

/// Whether a server's datagram begins with a ServerHello that goes on with the handshake: neither
/// the HelloVerifyRequest of 1.2 nor the HelloRetryRequest of 1.3, nor anything else that may be
/// sent to an unverified address.
pub(crate) fn goes_on(datagram: &[u8]) -> bool {
    match message(datagram) {
        Some(Message { kind: SERVER_HELLO, offset: 0, body, .. }) => {
            body.get(2..10).is_some_and(|random| random != RETRY_RANDOM)
        }
        _ => false,
    }
}
