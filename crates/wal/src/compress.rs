//! Compresses a block's payload, decompresses it, and predicts whether compression is worth the
//! time.

#[cfg(feature = "zstd")]
use std::cell::RefCell;

use bytes::Bytes;
#[cfg(feature = "zstd")]
use zstd_safe::{CCtx, DCtx};

use crate::format::Codec;

/// zstd's fastest regular level.
#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 1;
/// Largest factor by which each codec shrinks a payload. A block that claims a greater length is
/// damaged, and gets no memory: LZ4 codes at most 255 bytes in 1 byte; zstd codes at most a block
/// of 128 KiB in 3 bytes.
const LZ4_MOST: usize = 255;
const ZSTD_MOST: usize = (128 << 10) / 3;

/// Payloads shorter than this are compressed without a prediction: a prediction would cost half of
/// its possible gain.
const ASK_FROM: usize = 64 << 10;
/// Number and size of the windows that the prediction reads, spread over the payload.
const WINDOWS: usize = 8;
const WINDOW: usize = 512;
/// A payload may shrink if one position in this many begins with four bytes that occurred before.
/// Noise has one in seventy or fewer; text and program output have one in three or more.
const ONE_IN: usize = 25;
const HASH_BITS: u32 = 12;

#[cfg(feature = "zstd")]
thread_local! {
    // A context takes about 1 MB, which is zeroed when the context is created.
    static COMPRESSOR: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Returns whether a payload is likely to shrink.
pub(crate) fn may_shrink(raw: &[u8]) -> bool {
    if raw.len() < ASK_FROM {
        return true;
    }
    let mut met = [0u32; 1 << HASH_BITS];
    let step = (raw.len() - WINDOW) / (WINDOWS - 1);
    let mut again = 0;
    for window in (0..WINDOWS).map(|i| &raw[i * step..][..WINDOW]) {
        for four in window.windows(4) {
            let four = u32::from_le_bytes(four.try_into().expect("four bytes"));
            let slot = &mut met[(four.wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS)) as usize];
            again += usize::from(*slot == four);
            *slot = four;
        }
    }
    again * ONE_IN >= WINDOWS * (WINDOW - 3)
}

/// Returns the greatest length that `len` bytes can become.
pub(crate) fn bound(len: usize) -> usize {
    // The formula of zstd's header, without a call to foreign code, which miri cannot run.
    let zstd = len + (len >> 8) + (((128_usize << 10).saturating_sub(len)) >> 11);
    lz4_flex::block::get_maximum_output_size(len).max(zstd)
}

/// Compresses `raw` into `out`, which has [`bound`] bytes, and returns the compressed length;
/// `None` on failure.
pub(crate) fn compress(codec: Codec, raw: &[u8], out: &mut [u8]) -> Option<usize> {
    match codec {
        Codec::Raw => None,
        Codec::Lz4 => lz4_flex::block::compress_into(raw, out).ok(),
        #[cfg(feature = "zstd")]
        Codec::Zstd => COMPRESSOR.with_borrow_mut(|context| {
            let context = context.get_or_insert_with(CCtx::create);
            context.compress(out, raw, ZSTD_LEVEL).ok()
        }),
        #[cfg(not(feature = "zstd"))]
        Codec::Zstd => None,
    }
}

/// Decompresses a payload. `None` if the stored bytes cannot be a block of this length.
pub(crate) fn open(codec: Codec, stored: &[u8], raw_len: usize) -> Option<Bytes> {
    let most = match codec {
        Codec::Raw => return (stored.len() == raw_len).then(|| Bytes::copy_from_slice(stored)),
        Codec::Lz4 => LZ4_MOST,
        Codec::Zstd => ZSTD_MOST,
    };
    if raw_len / most > stored.len() {
        return None;
    }
    let mut raw = vec![0; raw_len];
    let len = match codec {
        #[cfg(not(feature = "zstd"))]
        Codec::Zstd => None,
        #[cfg(feature = "zstd")]
        Codec::Zstd => DECOMPRESSOR.with_borrow_mut(|context| {
            let context = context.get_or_insert_with(DCtx::create);
            context.decompress(&mut raw[..], stored).ok()
        }),
        _ => lz4_flex::block::decompress_into(stored, &mut raw).ok(),
    };
    (len? == raw_len).then(|| raw.into())
}

#[cfg(test)]
mod tests {
    use brooklet_io::Rng;

    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut rng = Rng::new(3);
        (0..len).map(|_| rng.next() as u8).collect()
    }

    fn json(len: usize) -> Vec<u8> {
        let mut rng = Rng::new(4);
        let record =
            |_| format!("{{\"player\":{},\"x\":{},\"y\":{}}}", rng.below(1000), rng.below(99), rng.below(99));
        let mut text: Vec<u8> = (0..len / 20).map(record).collect::<String>().into();
        text.truncate(len);
        text
    }

    #[test]
    fn each_codec_gives_back_what_it_took() {
        for payload in [json(100_000), noise(100_000), vec![0; 1 << 20], vec![1], vec![]] {
            for codec in [Codec::Lz4, Codec::STRONGEST] {
                let mut out = vec![0; bound(payload.len())];
                let len = compress(codec, &payload, &mut out).expect("the bound holds");
                assert_eq!(open(codec, &out[..len], payload.len()).as_deref(), Some(&payload[..]));
                assert_eq!(open(codec, &out[..len], payload.len() + 1), None);
                assert_eq!(open(codec, &out[..len / 2], payload.len()).filter(|_| len > 1), None);
            }
        }
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn the_bound_is_that_of_either_codec() {
        for len in [0, 1, 100, 439, 4096, (128 << 10) - 1, 128 << 10, 1 << 20, 64 << 20, 1 << 30] {
            assert!(bound(len) >= zstd_safe::compress_bound(len));
        }
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn zstd_beats_lz4_on_what_programs_write() {
        let payload = json(256 << 10);
        let len = |codec| compress(codec, &payload, &mut vec![0; bound(payload.len())]).expect("it fits");
        assert!(len(Codec::Zstd) < len(Codec::Lz4));
    }

    #[test]
    fn a_glance_tells_what_shrinks() {
        let mixed = [noise(32 << 10), json(32 << 10)].concat().repeat(4);
        assert!(may_shrink(&json(256 << 10)) && may_shrink(&mixed) && may_shrink(&vec![0; 1 << 20]));
        assert!(!may_shrink(&noise(256 << 10)));
        assert!(may_shrink(&noise(1000)), "short payloads are not worth the glance");
    }

    #[test]
    fn a_lying_length_is_refused_without_taking_the_memory() {
        assert_eq!(open(Codec::Lz4, &[0; 10], usize::MAX / 2), None);
        assert_eq!(open(Codec::Zstd, &[0; 10], usize::MAX / 2), None);
        assert_eq!(open(Codec::Raw, &[0; 10], 11), None);
    }
}
