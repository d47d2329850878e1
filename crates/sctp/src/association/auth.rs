//! Authenticated chunks (RFC 4895).
//!
//! The keys of an association follow from both sides' handshake parameters and from the keys
//! that both have been given; every AUTH chunk names the one in use.

use super::Association;
use super::input::Arrived;
use crate::config::{Authentication, MAX_KEYS, SharedKey};
use crate::handshake::{Cookie, KeyVector, algorithm};
use neater_sctp_wire::cause::UnsupportedHmac;
use neater_sctp_wire::chunk::{Asconf, Auth, CookieEcho, HmacId};
use neater_sctp_wire::{Chunk, ChunkSet, Packet, PacketBuilder, RawChunk, Signing};
use ring::hmac;

/// Why an AUTH chunk does not vouch for what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// We did not ask for this algorithm.
    Algorithm(HmacId),
    /// There is no such key, or the digest is another one.
    Digest,
}

/// Both directions of one association.
#[derive(Debug)]
pub(super) struct Authenticator {
    ours: KeyVector,
    theirs: KeyVector,
    /// With which algorithm we send: the first of the peer's that we have (section 6.1).
    hmac: HmacId,
    /// The keys that were used last, ready for use: to send, and to check.
    sending: Option<(u16, hmac::Key)>,
    checking: Option<(u16, HmacId, hmac::Key)>,
}

impl Authenticator {
    /// From both key vectors; `None` if the peer can check nothing that we can compute.
    pub(super) fn new(ours: &[u8], theirs: &[u8]) -> Option<Self> {
        let (ours, theirs) = (KeyVector::read(ours), KeyVector::read(theirs));
        let hmac = theirs.algorithms.iter().copied().find(|a| algorithm(*a).is_some())?;
        Some(Self { ours, theirs, hmac, sending: None, checking: None })
    }

    /// What the packet builder must know.
    pub(super) fn signing(&self, key: u16) -> Signing {
        Signing { key, hmac: self.hmac, kinds: self.theirs.required }
    }

    /// The key of that number, made for an algorithm.
    fn key(&self, keys: &Keys, id: u16, hmac: HmacId) -> Option<hmac::Key> {
        let secret = keys.secret(id)?;
        Some(hmac::Key::new(algorithm(hmac)?, &self.ours.shared(&self.theirs, secret)))
    }

    fn check(&mut self, keys: &Keys, packet: &Packet<'_>, raw: &RawChunk<'_>) -> Result<(), Doubt> {
        let Ok(Chunk::Auth(Auth { key: id, hmac, digest })) = Chunk::decode(raw) else { return Err(Doubt::Digest) };
        if !self.ours.algorithms.contains(&hmac) {
            return Err(Doubt::Algorithm(hmac));
        }
        let input = packet.auth_input(raw).filter(|_| hmac.digest_len() == Some(digest.len())).ok_or(Doubt::Digest)?;
        if self.checking.as_ref().is_none_or(|(i, h, _)| (*i, *h) != (id, hmac)) {
            self.checking = Some((id, hmac, self.key(keys, id, hmac).ok_or(Doubt::Digest)?));
        }
        let Some((.., key)) = &self.checking else { return Err(Doubt::Digest) };
        let mut context = hmac::Context::with_key(key);
        input.iter().for_each(|part| context.update(part));
        let same = context.sign().as_ref().iter().zip(digest).fold(0, |d, (a, b)| d | (a ^ b)) == 0;
        if same { Ok(()) } else { Err(Doubt::Digest) }
    }
}

/// The keys that both endpoints have been given, and the one in use.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    list: Vec<SharedKey>,
    pub(super) active: u16,
}

impl Keys {
    pub(super) fn new(config: &Authentication) -> Self {
        Self { list: config.keys.clone(), active: config.key }
    }

    /// Without any key the empty one has number 0 (RFC 4895 section 6.1); else only what was given
    /// counts (section 6.3).
    fn secret(&self, id: u16) -> Option<&[u8]> {
        if self.list.is_empty() && id == 0 {
            return Some(&[]);
        }
        self.list.iter().find(|k| k.id == id).map(|k| &k.secret[..])
    }
}

impl Association {
    /// Takes both sides' parameters of authentication.
    pub(super) fn agree_on_keys(&mut self, ours: &[u8], theirs: &[u8]) {
        let wanted = self.agreed.authentication;
        self.auth = if wanted { Authenticator::new(ours, theirs).map(Box::new) } else { None };
        self.agreed.authentication = self.auth.is_some();
        self.agreed.dynamic_addresses &= self.agreed.authentication;
    }

    /// Whether the AUTH chunk `raw` of `packet` vouches for the chunks behind it.
    pub(crate) fn check_auth(&mut self, packet: &Packet<'_>, raw: &RawChunk<'_>) -> Result<(), Doubt> {
        let checked = match self.auth.as_mut() {
            Some(auth) => auth.check(&self.keys, packet, raw),
            None => Err(Doubt::Digest),
        };
        self.stats.unauthenticated += u64::from(checked.is_err());
        checked
    }

    /// Whether a COOKIE ECHO chunk is authenticated as it must be (RFC 4895 section 6.3): with the
    /// keys of the association, or while it is not up, with those that follow from the cookie.
    pub(crate) fn vouches_for(&mut self, cookie: &Cookie, packet: &Packet<'_>, auth: Option<&RawChunk<'_>>) -> bool {
        let mut of_cookie = None;
        // While the handshake is under way the cookie's tags may take the place of those that we
        // know (RFC 9260 section 5.2.4, action B), and its random number with them (RFC 4895
        // section 6.1).
        let settled = !self.is_opening();
        let keys = match self.auth.as_mut().filter(|_| settled) {
            Some(known) => Some(&mut **known),
            None => {
                let ours = self.offer();
                if ours.agreed(&cookie.peer).authentication {
                    of_cookie = Authenticator::new(&ours.auth, &cookie.peer.auth);
                }
                of_cookie.as_mut()
            }
        };
        match (keys, auth) {
            (Some(keys), Some(raw)) => keys.check(&self.keys, packet, raw).is_ok(),
            (Some(keys), None) => !keys.ours.required.contains(CookieEcho::KIND),
            // AUTH is an unknown chunk then, and ends the packet.
            (None, auth) => auth.is_none(),
        }
    }

    /// Whether we take chunks of this type only if they are authenticated.
    pub(crate) fn requires_auth(&self, kind: u8) -> bool {
        self.auth.as_ref().is_some_and(|a| a.ours.required.contains(kind))
    }

    /// Looks at a chunk before it is taken: `None` if it may be; else whether the rest of the
    /// packet is looked at.
    pub(super) fn challenge(&mut self, arrived: &mut Arrived, packet: &Packet<'_>, raw: &RawChunk<'_>) -> Option<bool> {
        self.auth.as_ref()?;
        if raw.kind == Auth::KIND {
            return Some(match self.check_auth(packet, raw) {
                Ok(()) => {
                    arrived.authenticated = true;
                    true
                }
                Err(Doubt::Algorithm(hmac)) => {
                    self.queue_error(&UnsupportedHmac { hmac }.into());
                    false
                }
                Err(Doubt::Digest) => false,
            });
        }
        if arrived.authenticated || !self.requires_auth(raw.kind) {
            return None;
        }
        self.stats.unauthenticated += 1;
        // RFC 5061 section 5.2, D5: with an ASCONF chunk the rest of the packet goes too.
        Some(raw.kind != Asconf::KIND)
    }

    /// From now on the builder puts chunks behind AUTH as the peer wants it.
    pub(super) fn sign(&self, packet: &mut PacketBuilder<'_>, also: ChunkSet) {
        if let Some(auth) = &self.auth {
            let mut signing = auth.signing(self.keys.active);
            signing.kinds = signing.kinds.union(also);
            packet.sign(signing);
        }
    }

    /// Puts the digest into a packet that is complete.
    pub(super) fn seal(&mut self, packet: &mut PacketBuilder<'_>) {
        let (Some(slot), Some(auth)) = (packet.auth(), self.auth.as_mut()) else { return };
        let id = self.keys.active;
        if auth.sending.as_ref().is_none_or(|(i, _)| *i != id) {
            auth.sending = auth.key(&self.keys, id, auth.hmac).map(|key| (id, key));
        }
        // A number without a key was refused when it was set.
        if let Some((_, key)) = &auth.sending {
            let digest = hmac::sign(key, packet.signed(&slot));
            packet.set_digest(&slot, digest.as_ref());
        }
    }

    /// What AUTH takes of every packet that is filled.
    pub(super) fn auth_overhead(&self) -> usize {
        self.auth.as_ref().map_or(0, |a| a.signing(0).reserved())
    }

    /// Learns a key, or another secret for one; false if there are too many.
    pub(crate) fn set_key(&mut self, key: SharedKey) -> bool {
        let list = &mut self.keys.list;
        match list.iter().position(|k| k.id == key.id) {
            Some(known) => list[known] = key,
            None if list.len() < MAX_KEYS => list.push(key),
            None => return false,
        }
        self.forget_made_keys();
        true
    }

    /// Forgets a key; false if there is none, or it is in use.
    pub(crate) fn remove_key(&mut self, id: u16) -> bool {
        let before = self.keys.list.len();
        if id != self.keys.active {
            self.keys.list.retain(|k| k.id != id);
        }
        self.forget_made_keys();
        self.keys.list.len() < before
    }

    /// Sends with this key from now on; false if there is none.
    pub(crate) fn use_key(&mut self, id: u16) -> bool {
        let known = self.keys.secret(id).is_some();
        if known {
            self.keys.active = id;
        }
        known
    }

    fn forget_made_keys(&mut self) {
        if let Some(auth) = self.auth.as_mut() {
            (auth.sending, auth.checking) = (None, None);
        }
    }
}
