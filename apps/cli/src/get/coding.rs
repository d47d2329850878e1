//! Content that a server has compressed for the way (RFC 9110 section 8.4).

use crate::failure::{Exit, Failure};
use bytes::Bytes;
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use std::io::Write;

/// What is asked for.
pub(super) const ASKED: &str = "gzip, deflate";
/// How much is decoded at once, in bytes: it may become a thousand times as much.
pub(super) const PIECE: usize = 4 << 10;

/// What undoes it.
pub(super) enum Decoder {
    /// And whether anything has come: no content is no fault.
    Gzip(MultiGzDecoder<Vec<u8>>, bool),
    /// As RFC 9110 has it.
    Zlib(ZlibDecoder<Vec<u8>>),
    /// As some servers have it (RFC 9110 section 8.4.1.2, Note).
    Deflate(DeflateDecoder<Vec<u8>>),
    /// Which of the two shows the first byte.
    Either,
}

impl Decoder {
    /// `None`: nothing is to be undone.
    ///
    /// # Errors
    /// The coding is one that was not asked for.
    pub(super) fn of(headers: &HeaderMap) -> Result<Option<Self>, Failure> {
        let all = headers.get_all(CONTENT_ENCODING).into_iter().map(|v| v.to_str().unwrap_or("?"));
        let codings: Vec<_> = all.flat_map(|v| v.split(',')).map(str::trim).filter(|c| !c.is_empty()).collect();
        match codings[..] {
            [] => Ok(None),
            [one] if one.eq_ignore_ascii_case("identity") => Ok(None),
            [one] if one.eq_ignore_ascii_case("gzip") || one.eq_ignore_ascii_case("x-gzip") => {
                Ok(Some(Self::Gzip(MultiGzDecoder::new(Vec::new()), false)))
            }
            [one] if one.eq_ignore_ascii_case("deflate") => Ok(Some(Self::Either)),
            _ => {
                let what = format!("the content is coded as {}, and {ASKED} were asked for", codings.join(", "));
                Err(Failure::new(Exit::Failed, "protocol", what).advise("fetch it without --compressed"))
            }
        }
    }

    /// What a piece of the coded content becomes.
    pub(super) fn decode(&mut self, coded: &[u8]) -> Result<Bytes, Failure> {
        if let (Self::Either, Some(first)) = (&*self, coded.first()) {
            // RFC 1950 section 2.2: the low half of the first byte is 8 for zlib.
            *self = match first & 15 {
                8 => Self::Zlib(ZlibDecoder::new(Vec::new())),
                _ => Self::Deflate(DeflateDecoder::new(Vec::new())),
            };
        }
        if let (Self::Gzip(_, fed), false) = (&mut *self, coded.is_empty()) {
            *fed = true;
        }
        let (written, out) = match self {
            Self::Gzip(d, _) => (d.write_all(coded), core::mem::take(d.get_mut())),
            Self::Zlib(d) => (d.write_all(coded), core::mem::take(d.get_mut())),
            Self::Deflate(d) => (d.write_all(coded), core::mem::take(d.get_mut())),
            Self::Either => (Ok(()), Vec::new()),
        };
        written.map_err(|e| bad(&e))?;
        Ok(out.into())
    }

    /// The coded content has ended.
    pub(super) fn finish(self) -> Result<Bytes, Failure> {
        match self {
            Self::Gzip(_, false) => Ok(Vec::new()),
            Self::Gzip(mut d, true) => d.try_finish().map(|()| core::mem::take(d.get_mut())),
            Self::Zlib(mut d) => d.try_finish().map(|()| core::mem::take(d.get_mut())),
            Self::Deflate(mut d) => d.try_finish().map(|()| core::mem::take(d.get_mut())),
            Self::Either => Ok(Vec::new()),
        }
        .map(Bytes::from)
        .map_err(|e| bad(&e))
    }
}

fn bad(e: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, "protocol", format!("the content is not coded as its field has it: {e}"))
        .advise("fetch it without --compressed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    fn headers(coding: &'static str) -> HeaderMap {
        let mut all = HeaderMap::new();
        all.insert(CONTENT_ENCODING, http::HeaderValue::from_static(coding));
        all
    }

    fn undone(coding: &'static str, coded: &[u8]) -> Result<Vec<u8>, Failure> {
        let Some(mut decoder) = Decoder::of(&headers(coding))? else { return Ok(coded.to_vec()) };
        let mut all = Vec::new();
        for byte in coded {
            all.extend_from_slice(&decoder.decode(&[*byte])?);
        }
        all.extend_from_slice(&decoder.finish()?);
        Ok(all)
    }

    #[test]
    fn what_was_coded_is_undone_whichever_way() {
        let plain = b"the same again, the same again, the same again".repeat(100);
        let level = Compression::default();
        let mut gzip = GzEncoder::new(Vec::new(), level);
        gzip.write_all(&plain).unwrap();
        let gzip = gzip.finish().unwrap();
        let mut zlib = ZlibEncoder::new(Vec::new(), level);
        zlib.write_all(&plain).unwrap();
        let mut deflate = DeflateEncoder::new(Vec::new(), level);
        deflate.write_all(&plain).unwrap();
        assert_eq!(undone("gzip", &gzip).unwrap(), plain);
        assert_eq!(undone("x-GZIP", &[&gzip[..], &gzip[..]].concat()).unwrap().len(), 2 * plain.len());
        assert_eq!(undone("deflate", &zlib.finish().unwrap()).unwrap(), plain);
        assert_eq!(undone("deflate", &deflate.finish().unwrap()).unwrap(), plain);
        assert_eq!(undone("identity", &plain).unwrap(), plain);
        assert!(undone("gzip", &gzip[..gzip.len() - 9]).is_err(), "cut short");
        assert!(undone("gzip", b"no such thing").is_err());
        assert!(undone("gzip", b"").unwrap().is_empty() && undone("deflate", b"").unwrap().is_empty(), "no content");
        for other in ["br", "gzip, gzip", "zstd"] {
            assert!(Decoder::of(&headers(other)).is_err(), "{other}");
        }
    }
}
