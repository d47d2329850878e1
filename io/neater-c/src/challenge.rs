//! Signatures that the program approves or makes itself (RFC 9622 section 6.3.8,
//! `SetIdentityChallengeCallback`).

use crate::border::{guard, object_mut, within};
use crate::security::{User, neater_certificate, neater_security_parameters};
use crate::status::neater_status;
use neater::tls::{Answer, Challenge, IdentityChallenge};
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

/// The longest signature that a callback can give: of RSA with keys of 8,192 bits, for others are
/// shorter.
const LONGEST: usize = 1024;

/// What a `neater_challenge_fn` answers.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum neater_challenge_answer {
    /// Nothing is signed, and the handshake fails. Numbers without a name mean the same.
    NEATER_CHALLENGE_REFUSE = 0,
    /// The library signs, with the key that it was given.
    NEATER_CHALLENGE_SIGN = 1,
    /// The program has signed: `signature` and `signature_length` have the result.
    NEATER_CHALLENGE_SIGNED = 2,
}

/// What is to be signed, so that the peer may know who this side is. It lives until the callback
/// returns.
#[repr(C)]
#[derive(Debug)]
pub struct neater_challenge {
    /// `sizeof(neater_challenge)` of the library: a program that is newer than it finds fewer
    /// fields.
    pub size: usize,
    /// The certificates whose key is asked for, end entity first.
    pub chain: *const neater_certificate,
    /// How many.
    pub certificates: usize,
    /// What to sign. It is not a hash: the scheme states which one it takes.
    pub message: *const c_void,
    /// How many bytes that is.
    pub length: usize,
    /// How to sign: a `SignatureScheme` of TLS by its number in IANA's registry.
    pub scheme: u32,
    /// Not used; 0.
    pub reserved: u32,
    /// The same by its name: `ECDSA_NISTP256_SHA256`; empty where the library has none.
    pub scheme_name: *const c_char,
    /// Where the program writes a signature of its own, in the encoding of TLS (ECDSA: DER).
    pub signature: *mut c_void,
    /// How many bytes fit there.
    pub signature_room: usize,
    /// How many bytes the program has written there.
    pub signature_length: usize,
}

/// Asked whenever a handshake needs a signature of this side, as a client or as a server
/// (`SetIdentityChallengeCallback`); not when a session is resumed. It returns a
/// `neater_challenge_answer`.
///
/// It is called while the engine is at work, from any thread that drives: it must not wait for
/// long, and functions of contexts, and of what was made from them, answer NEATER_ERROR_REENTRANT
/// there.
pub type neater_challenge_fn = Option<unsafe extern "C" fn(challenge: *mut neater_challenge, user: *mut c_void) -> u32>;

/// The program's function as one of the library's.
fn asking(callback: unsafe extern "C" fn(*mut neater_challenge, *mut c_void) -> u32, user: User) -> IdentityChallenge {
    Arc::new(move |asked: &Challenge<'_>| {
        let chain = neater_certificate::list(asked.chain);
        let name = CString::new(asked.scheme.as_str().unwrap_or_default()).unwrap_or_default();
        let mut signature = [0_u8; LONGEST];
        let mut challenge = neater_challenge {
            size: size_of::<neater_challenge>(),
            chain: chain.as_ptr(),
            certificates: chain.len(),
            message: asked.message.as_ptr().cast(),
            length: asked.message.len(),
            scheme: u16::from(asked.scheme).into(),
            reserved: 0,
            scheme_name: name.as_ptr(),
            signature: signature.as_mut_ptr().cast(),
            signature_room: LONGEST,
            signature_length: 0,
        };
        // SAFETY: the program's own function, with what lives until it returns.
        let answer = within(|| unsafe { callback(&raw mut challenge, user.get()) });
        let signed = signature.get(..challenge.signature_length).filter(|s| !s.is_empty());
        match (answer, signed) {
            (1, _) => Answer::Sign,
            (2, Some(signature)) => Answer::Signature(signature.to_vec()),
            _ => Answer::Refuse,
        }
    })
}

/// Has the program asked before anything is signed with a private key, which it may refuse, or do
/// itself: a certificate that was added without its key needs that. NULL takes the callback away.
///
/// Lifetime: `user` must live as long as any object that was made with the parameters. Thread: one
/// at a time for an object; the callback comes from any thread that drives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_security_parameters_set_challenge_callback(
    security: *mut neater_security_parameters,
    callback: neater_challenge_fn,
    user: *mut c_void,
) -> neater_status {
    let user = User::new(user);
    guard(|| {
        // SAFETY: the caller's promise.
        let security = unsafe { object_mut(security, "security") }?;
        security.inner.identity_challenge = callback.map(|callback| asking(callback, user));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater::tls::rustls::SignatureScheme;

    unsafe extern "C" fn answers(challenge: *mut neater_challenge, user: *mut c_void) -> u32 {
        // SAFETY: both live until it returns.
        let (challenge, (answer, length)) = unsafe { (&mut *challenge, *user.cast::<(u32, usize)>()) };
        challenge.signature_length = length;
        answer
    }

    #[test]
    fn only_a_signature_that_is_there_is_one() {
        for (answer, length, expected) in [
            (0, 0, Answer::Refuse),
            (1, 0, Answer::Sign),
            (2, 64, Answer::Signature(vec![0; 64])),
            (2, 0, Answer::Refuse),
            (2, LONGEST + 1, Answer::Refuse),
            (2, usize::MAX, Answer::Refuse),
            (3, 64, Answer::Refuse),
        ] {
            let mut user = (answer, length);
            let ask = asking(answers, User::new((&raw mut user).cast()));
            let challenge = Challenge { chain: &[], scheme: SignatureScheme::ED25519, message: b"m" };
            assert_eq!(ask(&challenge), expected, "{answer} with {length} bytes");
        }
    }
}
