//! The bodies of answers.

use super::Common;
use super::admission::Admitted;
use super::liveness::{Record, UnderWay};
use super::reserve::Opened;
use bytes::{Bytes, BytesMut};
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use http_body::{Body, Frame, SizeHint};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use tokio::task::JoinHandle;

/// Bytes read from a file at once. One such piece per answer is in memory.
pub(crate) const CHUNK: u64 = 128 << 10;

/// The last bytes of an answer over HTTP/2, and in how many pieces they are passed on: hyper has
/// one in its hands before the client has room for it, and gives up what is in h2's only with its
/// stream. So small, h2 writes them together with whatever else there is.
const TAIL: (usize, usize) = (2 * TAIL_PIECE, TAIL_PIECE);
const TAIL_PIECE: usize = 255;
/// Answers of so many bytes are not worth that.
const SMALL: u64 = 4 << 10;

/// The body of an answer: nothing, a short text, or a part of a file that is read as the connection
/// takes it.
pub struct FileBody {
    source: Source,
    left: u64,
    /// Whether the last bytes are kept until the client has room for those before them.
    tailed: bool,
    tail: Bytes,
    witness: Option<Witness>,
}

enum Source {
    Text(Bytes),
    File {
        file: Arc<Opened>,
        how: Reading,
        at: u64,
        ahead: Option<Bytes>,
        reading: Option<JoinHandle<io::Result<Bytes>>>,
    },
}

/// How a file can be read without waiting for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// As far as it is in memory (`RWF_NOWAIT`).
    Cached,
    /// Always: its file system is memory, which knows no such flag.
    Memory,
    /// Not: the kernel knows no such flag.
    Elsewhere,
}

/// The parts that are notified when the body progresses.
struct Witness {
    /// Shared with pieces that HTTP keeps.
    under_way: Arc<UnderWay>,
    record: Option<Arc<Record>>,
    common: Arc<Common>,
    /// Also of a piece that is being read, for as long as that takes.
    admitted: Option<Arc<Admitted>>,
    /// A piece was given to the connection. That alone is nothing of the client's doing; that it
    /// wants another is.
    given: bool,
}

/// A piece of a body, which is under way as long as HTTP keeps any of it.
struct Piece {
    bytes: Bytes,
    _under_way: Arc<UnderWay>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Witness {
    fn piece(&mut self, bytes: Bytes) -> Bytes {
        if core::mem::replace(&mut self.given, true) {
            self.under_way.moves();
            if let Some(admitted) = &self.admitted {
                admitted.moves();
            }
        }
        let length = bytes.len() as u64;
        if let Some(record) = &self.record {
            record.gives(length);
        }
        self.common.counters.bytes.fetch_add(length, Ordering::Relaxed);
        Bytes::from_owner(Piece { bytes, _under_way: self.under_way.clone() })
    }
}

impl FileBody {
    /// No body.
    #[must_use]
    pub fn empty() -> Self {
        Self::text(Bytes::new())
    }

    /// A text.
    #[must_use]
    pub fn text(text: impl Into<Bytes>) -> Self {
        let text = text.into();
        Self::of(text.len() as u64, Source::Text(text))
    }

    /// `length` bytes of `file` from `start` on. It is an error if the file turns out to be
    /// shorter.
    pub(crate) fn file((file, how): (Opened, Reading), start: u64, length: u64) -> Self {
        Self::of(length, Source::File { file: Arc::new(file), how, at: start, ahead: None, reading: None })
    }

    fn of(left: u64, source: Source) -> Self {
        Self { source, left, tailed: false, tail: Bytes::new(), witness: None }
    }

    /// Over HTTP/2 a stream is over for hyper when all of its answer is with h2, which keeps it for
    /// as long as the client gives it no room. So the last of it is passed on when the rest has
    /// left: otherwise a client would have a piece of each answer kept that it never takes, and no
    /// admission for it.
    pub(crate) fn tailed(mut self) -> Self {
        self.tailed = self.left > SMALL;
        self
    }

    /// Reads the first piece, so that it leaves with the head: alone, over plain TCP, it would wait
    /// until the client has acknowledged that (RFC 1122 section 4.2.3.4), which may take 40 ms. May
    /// block.
    pub(crate) fn read_ahead(&mut self) {
        if let Source::File { file, at, ahead, .. } = &mut self.source
            && self.left > 0
            // An error is reported where the piece is wanted.
            && let Ok(piece) = read(file, *at, self.left)
        {
            *at += piece.len() as u64;
            *ahead = Some(piece);
        }
    }

    /// The same if it needs no disk. False: it does.
    pub(crate) fn read_ahead_at_once(&mut self) -> bool {
        let Source::File { file, how, at, ahead, .. } = &mut self.source else { return true };
        if self.left == 0 {
            return true;
        }
        let Some(piece) = read_at_once(file, *how, *at, self.left) else { return false };
        *at += piece.len() as u64;
        *ahead = Some(piece);
        true
    }

    /// How many bytes are left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The admission, if it has one, for code that knows better whether it progresses.
    pub(crate) fn admitted(&self) -> Option<Weak<Admitted>> {
        self.witness.as_ref()?.admitted.as_ref().map(Arc::downgrade)
    }

    /// Reports every piece. The answer is under way until the body and its pieces are gone;
    /// `admitted` is kept until the body is gone and what it has begun to read is read.
    pub(crate) fn witnessed(
        mut self,
        under_way: UnderWay,
        record: Option<Arc<Record>>,
        common: Arc<Common>,
        admitted: Option<Admitted>,
    ) -> Self {
        let (under_way, admitted) = (Arc::new(under_way), admitted.map(Arc::new));
        self.witness = Some(Witness { under_way, record, common, admitted, given: false });
        self
    }
}

fn read(file: &File, at: u64, length: u64) -> io::Result<Bytes> {
    let mut buf = BytesMut::zeroed(usize::try_from(length.min(CHUNK)).unwrap_or_default());
    let mut filled = 0;
    while filled < buf.len() {
        match file.read_at(&mut buf[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    if filled < buf.len() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was served"));
    }
    Ok(buf.freeze())
}

/// As [`read`], or less, if it needs no disk. What goes wrong is found out by [`read`].
fn read_at_once(file: &File, how: Reading, at: u64, length: u64) -> Option<Bytes> {
    match how {
        Reading::Memory => return read(file, at, length).ok(),
        Reading::Elsewhere => return None,
        Reading::Cached => {}
    }
    let mut buf = BytesMut::zeroed(usize::try_from(length.min(CHUNK)).unwrap_or_default());
    let slice = &mut [io::IoSliceMut::new(&mut buf)];
    let n = rustix::io::preadv2(file, slice, at, rustix::io::ReadWriteFlags::NOWAIT).ok()?;
    buf.truncate(n);
    (n > 0).then(|| buf.freeze())
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        if this.left == 0 {
            return Poll::Ready(None);
        }
        let mut piece = 'piece: {
            match &mut this.source {
                _ if !this.tail.is_empty() => Ok(this.tail.split_to(TAIL.1.min(this.tail.len()))),
                Source::Text(text) => Ok(core::mem::take(text)),
                Source::File { ahead: Some(ahead), .. } if !ahead.is_empty() => Ok(core::mem::take(ahead)),
                Source::File { file, how, at, reading, .. } => {
                    if reading.is_none()
                        && let Some(piece) = read_at_once(file, *how, *at, this.left)
                    {
                        *at += piece.len() as u64;
                        break 'piece Ok(piece);
                    }
                    let witness = &this.witness;
                    let task = reading.get_or_insert_with(|| {
                        let (file, at, left) = (file.clone(), *at, this.left);
                        let admitted = witness.as_ref().and_then(|w| w.admitted.clone());
                        tokio::task::spawn_blocking(move || {
                            let piece = read(&file, at, left);
                            drop(admitted);
                            piece
                        })
                    });
                    let done = ready!(Pin::new(task).poll(cx));
                    *reading = None;
                    let piece = done.map_err(io::Error::other).and_then(|r| r);
                    if let Ok(p) = &piece {
                        *at += p.len() as u64;
                    }
                    piece
                }
            }
        };
        match &mut piece {
            Ok(p) => {
                if this.tailed && p.len() as u64 == this.left && p.len() > TAIL.0 {
                    // A copy: the rest of the piece is not kept for it.
                    this.tail = Bytes::copy_from_slice(&p[p.len() - TAIL.0..]);
                    p.truncate(p.len() - TAIL.0);
                }
                this.left = this.left.saturating_sub(p.len() as u64);
            }
            Err(e) => {
                tracing::warn!(target: "neater::serve", "reading failed in the middle of an answer: {e}");
                this.left = 0;
            }
        }
        let piece = match &mut this.witness {
            Some(w) => piece.map(|p| w.piece(p)),
            None => piece,
        };
        Poll::Ready(Some(piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn pieces(mut body: FileBody) -> (Vec<usize>, Vec<u8>) {
        let (mut lengths, mut all) = (Vec::new(), Vec::new());
        while let Some(frame) = body.frame().await {
            let data = frame.expect("read").into_data().expect("data");
            lengths.push(data.len());
            all.extend_from_slice(&data);
            assert_eq!(body.is_end_stream(), body.left() == 0);
        }
        (lengths, all)
    }

    #[tokio::test]
    async fn the_last_bytes_are_passed_on_behind_the_others_where_that_is_wanted() {
        let text: Vec<u8> = (0..10_000_u32).map(|i| i as u8).collect();
        assert_eq!(pieces(FileBody::text(text.clone())).await, (vec![10_000], text.clone()));
        assert_eq!(pieces(FileBody::text(text.clone()).tailed()).await, (vec![9490, 255, 255], text.clone()));
        let small = text[..4096].to_vec();
        assert_eq!(pieces(FileBody::text(small.clone()).tailed()).await, (vec![4096], small));
        // One of which the last piece is shorter than what is kept.
        let path = std::env::temp_dir().join(format!("neater-http-tail-{}", std::process::id()));
        let length = CHUNK as usize + 100;
        let contents: Vec<u8> = (0..length as u32).map(|i| (i >> 3) as u8).collect();
        std::fs::write(&path, &contents).expect("written");
        for (from, wanted) in [(0, vec![CHUNK as usize, 100]), (100, vec![CHUNK as usize - 510, 255, 255])] {
            let file = super::super::reserve::DescriptorReserve::new(0).open(|| File::open(&path)).expect("opened");
            let body = FileBody::file((file, Reading::Cached), from, (length as u64) - from).tailed();
            assert_eq!(pieces(body).await, (wanted, contents[from as usize..].to_vec()));
        }
        std::fs::remove_file(&path).expect("ours");
    }
}
