//! Cipher suites: AES-GCM and ChaCha20-Poly1305.

use aes::cipher::{Block, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes256};
use core::fmt;
use dimpl::crypto::{
    Aad, Buf, Cipher, Dtls12CipherSuite, Dtls13CipherSuite, Nonce, SupportedDtls12CipherSuite,
    SupportedDtls13CipherSuite, TmpBuf,
};
use dimpl::{CryptoError, CryptoOperation, HashAlgorithm};
use ring::aead::{self, AES_128_GCM, AES_256_GCM, Algorithm, CHACHA20_POLY1305, LessSafeKey, UnboundKey};

/// How many records one side may protect with AES-GCM in DTLS 1.2.
///
/// dimpl draws the explicit part of the nonce, 64 bits, at random, where RFC 5288 section 3 would
/// have it counted: after 2²⁰ records two have been alike with a probability of 2⁻²⁵, and two are
/// one too many. ChaCha20-Poly1305 and all of 1.3 derive the nonce from the record's number and
/// need no such limit.
pub(crate) const GCM_12_RECORDS: u32 = 1 << 20;

/// In the order in which a client offers them: the one whose nonces are counted goes first.
pub(super) static SUITES_12: &[&dyn SupportedDtls12CipherSuite] = &[
    &Suite12 { suite: Dtls12CipherSuite::ECDHE_ECDSA_CHACHA20_POLY1305_SHA256, aead: &CHACHA20_POLY1305 },
    &Suite12 { suite: Dtls12CipherSuite::ECDHE_ECDSA_AES128_GCM_SHA256, aead: &AES_128_GCM },
    &Suite12 { suite: Dtls12CipherSuite::ECDHE_ECDSA_AES256_GCM_SHA384, aead: &AES_256_GCM },
];

/// In the order of rustls's *ring* provider.
pub(super) static SUITES_13: &[&dyn SupportedDtls13CipherSuite] = &[
    &Suite13 { suite: Dtls13CipherSuite::AES_256_GCM_SHA384, aead: &AES_256_GCM },
    &Suite13 { suite: Dtls13CipherSuite::AES_128_GCM_SHA256, aead: &AES_128_GCM },
    &Suite13 { suite: Dtls13CipherSuite::CHACHA20_POLY1305_SHA256, aead: &CHACHA20_POLY1305 },
];

fn hash(aead: &'static Algorithm) -> HashAlgorithm {
    if aead == &AES_256_GCM { HashAlgorithm::SHA384 } else { HashAlgorithm::SHA256 }
}

struct Suite12 {
    suite: Dtls12CipherSuite,
    aead: &'static Algorithm,
}

impl Suite12 {
    fn is_gcm(&self) -> bool {
        self.aead != &CHACHA20_POLY1305
    }
}

impl fmt::Debug for Suite12 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.suite.fmt(f)
    }
}

impl SupportedDtls12CipherSuite for Suite12 {
    fn suite(&self) -> Dtls12CipherSuite {
        self.suite
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        hash(self.aead)
    }

    /// RFC 5288 section 3: four bytes of the nonce are fixed; RFC 7905 section 2: all twelve.
    fn key_lengths(&self) -> (usize, usize, usize) {
        (0, self.aead.key_len(), if self.is_gcm() { 4 } else { 12 })
    }

    fn explicit_nonce_len(&self) -> usize {
        if self.is_gcm() { 8 } else { 0 }
    }

    fn tag_len(&self) -> usize {
        self.aead.tag_len()
    }

    fn create_cipher(&self, key: &[u8]) -> Result<Box<dyn Cipher>, CryptoError> {
        cipher(self.aead, key, if self.is_gcm() { GCM_12_RECORDS } else { u32::MAX })
    }
}

struct Suite13 {
    suite: Dtls13CipherSuite,
    aead: &'static Algorithm,
}

impl fmt::Debug for Suite13 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.suite.fmt(f)
    }
}

impl SupportedDtls13CipherSuite for Suite13 {
    fn suite(&self) -> Dtls13CipherSuite {
        self.suite
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        hash(self.aead)
    }

    fn key_len(&self) -> usize {
        self.aead.key_len()
    }

    fn iv_len(&self) -> usize {
        aead::NONCE_LEN
    }

    fn tag_len(&self) -> usize {
        self.aead.tag_len()
    }

    fn create_cipher(&self, key: &[u8]) -> Result<Box<dyn Cipher>, CryptoError> {
        cipher(self.aead, key, u32::MAX)
    }

    /// RFC 9147 section 4.2.3. A key of the wrong length, which dimpl does not make, masks nothing.
    fn encrypt_sn(&self, sn_key: &[u8], sample: &[u8; 16]) -> [u8; 16] {
        let mut mask = [0; 16];
        if self.aead == &CHACHA20_POLY1305 {
            let key = aead::quic::HeaderProtectionKey::new(&aead::quic::CHACHA20, sn_key);
            // The same five bytes as for the header of a QUIC packet (RFC 9001 section 5.4.4); at
            // most two are used.
            if let Ok(Ok(five)) = key.map(|k| k.new_mask(sample)) {
                mask[..five.len()].copy_from_slice(&five);
            }
        } else if let Ok(aes) = Aes128::new_from_slice(sn_key) {
            mask = block(&aes, sample);
        } else if let Ok(aes) = Aes256::new_from_slice(sn_key) {
            mask = block(&aes, sample);
        }
        mask
    }
}

fn block<C: BlockCipherEncrypt>(aes: &C, sample: &[u8; 16]) -> [u8; 16] {
    let mut block = Block::<C>::default();
    block.copy_from_slice(sample);
    aes.encrypt_block(&mut block);
    let mut out = [0; 16];
    out.copy_from_slice(&block);
    out
}

fn cipher(aead: &'static Algorithm, key: &[u8], records: u32) -> Result<Box<dyn Cipher>, CryptoError> {
    let key = UnboundKey::new(aead, key).map_err(|_| failed(CryptoOperation::CreateCipher))?;
    Ok(Box::new(Aead { key: LessSafeKey::new(key), left: records, limited: records != u32::MAX }))
}

fn failed(operation: CryptoOperation) -> CryptoError {
    CryptoError::OperationFailed(operation)
}

/// One direction's key.
struct Aead {
    key: LessSafeKey,
    /// How many more records it may protect, where that is limited.
    left: u32,
    limited: bool,
}

impl fmt::Debug for Aead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aead").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Cipher for Aead {
    fn encrypt(&mut self, plaintext: &mut Buf, aad: Aad, nonce: Nonce) -> Result<(), CryptoError> {
        if self.limited {
            self.left = self.left.checked_sub(1).ok_or(failed(CryptoOperation::Encrypt))?;
        }
        self.key
            .seal_in_place_append_tag(
                aead::Nonce::assume_unique_for_key(nonce.0),
                aead::Aad::from(aad.0.as_slice()),
                plaintext,
            )
            .map_err(|_| failed(CryptoOperation::Encrypt))
    }

    fn decrypt(&mut self, ciphertext: &mut TmpBuf<'_>, aad: Aad, nonce: Nonce) -> Result<(), CryptoError> {
        let nonce = aead::Nonce::assume_unique_for_key(nonce.0);
        let aad = aead::Aad::from(aad.0.as_slice());
        let opened = self.key.open_in_place(nonce, aad, ciphertext.as_mut());
        let length = opened.map_err(|_| failed(CryptoOperation::Decrypt))?.len();
        ciphertext.truncate(length);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_key_stops_at_its_limit() {
        let mut key = cipher(&AES_128_GCM, &[1; 16], 2).unwrap();
        let mut seal = |n: u8| {
            let mut data = Buf::new();
            data.extend_from_slice(b"x");
            key.encrypt(&mut data, Aad(Default::default()), Nonce([n; 12]))
        };
        assert!(seal(1).is_ok() && seal(2).is_ok() && seal(3).is_err());
    }
}
