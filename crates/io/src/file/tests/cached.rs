//! Reads by way of the page cache: what they see of direct writes, and where there are none.

use super::*;
use crate::Counts;

/// Whether there is a page cache to read through: on Linux, where the directory of temporary files
/// allows direct I/O.
fn has_cache(volume: &FileVolume) -> bool {
    let has = volume.inner.cached.is_some();
    assert!(has || !cfg!(target_os = "linux") || !volume.info().direct, "{:?}", volume.info());
    has
}

/// What a page cache shows of a piece that lies across sectors.
fn piece(volume: &FileVolume) -> [u8; 5000] {
    let mut piece = [0; 5000];
    assert!(volume.read_cached(4000, &mut piece));
    piece
}

/// An extent is written, read by way of the page cache, freed, and written anew by each way that
/// writes can take.
#[test]
fn cached_reads_see_what_was_written_last() {
    let dir = tempfile::tempdir().unwrap();
    let volume = create(&dir, FileOptions::default());
    if !has_cache(&volume) {
        return;
    }
    let mut queue = volume.queue(1).unwrap();
    for byte in 1..=120 {
        let data = filled(3 * SECTOR, byte);
        match byte % 4 {
            0 => write_all_at(&volume, 0, &data, Persist::Cached).unwrap(),
            1 => write_all_at(&volume, 0, &data, Persist::Durable).unwrap(),
            2 => {
                queue.submit(1, Op::Write { offset: 0, data: data.freeze(), persist: Persist::Cached });
                queue.reap(true, &mut Vec::new());
            }
            _ => {
                volume.shrink(0).unwrap();
                volume.grow(1 << 20).unwrap();
                assert_eq!(piece(&volume), [0; 5000]);
                write_all_at(&volume, 0, &data, Persist::Cached).unwrap();
            }
        }
        assert_eq!(piece(&volume), [byte; 5000]);
        assert_eq!(piece(&volume), [byte; 5000]);
    }
}

#[test]
fn what_the_page_cache_answers_is_no_read_of_the_device() {
    let dir = tempfile::tempdir().unwrap();
    let volume = create(&dir, FileOptions::default());
    if !has_cache(&volume) {
        return;
    }
    write_all_at(&volume, 0, &filled(3 * SECTOR, 1), Persist::Durable).unwrap();
    let before = volume.counts();
    piece(&volume);
    let first = volume.counts() - before;
    // Pages go where memory is short: not in each of some looks.
    for _ in 0..50 {
        piece(&volume);
    }
    let Counts { reads, cached_reads, .. } = volume.counts() - before;
    assert!(first.reads + first.cached_reads == 1 && reads < 25 && reads + cached_reads == 51, "{first:?}");
}

/// The first look-up reads its neighbours, too. So later ones there need no read of the device.
#[test]
fn a_look_up_brings_its_neighbours_along() {
    let dir = tempfile::tempdir().unwrap();
    let volume = create(&dir, FileOptions::default());
    if !has_cache(&volume) {
        return;
    }
    let pages = 1 << 20 >> 12;
    for page in 0..pages {
        let data = filled(SECTOR, page as u8);
        write_all_at(&volume, page * SECTOR as u64, &data, Persist::Cached).unwrap();
    }
    volume.flush().unwrap();
    let before = volume.counts();
    for page in (0..pages).rev() {
        let mut byte = [0];
        assert!(volume.read_cached(page * SECTOR as u64 + 5, &mut byte));
        assert_eq!(byte, [page as u8]);
    }
    let Counts { reads, cached_reads, read_bytes, .. } = volume.counts() - before;
    // Some pages may go where memory is short, and a look-up may come before its bytes.
    assert!(reads < pages / 4 && reads + cached_reads == pages, "{reads} reads of {pages}");
    assert!(read_bytes >= 1 << 20, "what is brought along counts: {read_bytes}");
}

#[test]
fn there_is_no_cached_read_where_it_would_not_be_whole() {
    let dir = tempfile::tempdir().unwrap();
    let volume = create(&dir, FileOptions::default());
    assert!(!volume.read_cached((1 << 20) - 10, &mut [0; 11]) && !volume.read_cached(1 << 40, &mut [0; 1]));
    assert_eq!(volume.read_cached((1 << 20) - 10, &mut [0; 10]), has_cache(&volume));
    let capped = crate::capped(Arc::new(volume), 8192);
    assert!(!capped.read_cached(8190, &mut [0; 3]), "what is beyond the capacity is not the volume's");
    drop(capped);
    let path = dir.path().join("v");
    for direct in [true, false] {
        let options = FileOptions { direct, ..FileOptions::default() };
        let volume = FileVolume::open(&path, OpenMode::ReadOnly, options).unwrap();
        assert_eq!(volume.read_cached(1, &mut [0; 7]), direct && has_cache(&volume));
    }
}

/// The page cache holds what the file was before: only look-ups, which have a checksum, see that.
#[test]
pub(super) fn a_direct_read_passes_a_stale_page_by() {
    let dir = tempfile::tempdir().unwrap();
    let mut volume = create(&dir, FileOptions::default());
    if !has_cache(&volume) {
        return;
    }
    write_all_at(&volume, 0, &filled(3 * SECTOR, 2), Persist::Durable).unwrap();
    fs::write(dir.path().join("stale"), vec![1; 3 * SECTOR]).unwrap();
    Arc::get_mut(&mut volume.inner).unwrap().cached = Some(fs::File::open(dir.path().join("stale")).unwrap());
    assert_eq!(piece(&volume), [1; 5000]);
    let mut read = AlignedBuf::zeroed(3 * SECTOR);
    read_exact_at(&volume, 0, &mut read).unwrap();
    assert_eq!(read[..], filled(3 * SECTOR, 2)[..]);
}
