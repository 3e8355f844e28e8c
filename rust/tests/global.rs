//! Freestone as the global allocator of this very test program. One test at a time measures the heap, by a lock.

use std::alloc::{GlobalAlloc, Layout};
use std::collections::{BTreeMap, HashMap};
use std::sync::{mpsc, Mutex, MutexGuard};
use std::thread;

use freestone::{Error, Format, Freestone};

#[global_allocator]
static ALLOCATOR: Freestone = Freestone;

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(|broken| broken.into_inner())
}

const MIB: u64 = 1 << 20;

#[test]
fn allocations_are_counted_while_they_live() {
    let _guard = alone();
    assert!(freestone::is_active());
    assert_eq!(freestone::version(), env!("CARGO_PKG_VERSION"));
    let before = freestone::stats();
    let blocks: Vec<Box<[u8; 1000]>> = (0..20_000).map(|_| Box::new([7; 1000])).collect();
    let during = freestone::stats();
    assert!(during.live_bytes - before.live_bytes >= 20_000_000, "{before:?} {during:?}");
    assert!(during.live_bytes - before.live_bytes < 24_000_000, "{before:?} {during:?}");
    // Less some that the test harness freed meanwhile.
    assert!(during.live_blocks - before.live_blocks >= 19_900, "{before:?} {during:?}");
    drop(blocks);
    assert!(freestone::stats().live_bytes < before.live_bytes + MIB);
}

#[test]
fn trim_gives_memory_back_to_the_kernel() {
    let _guard = alone();
    let blocks: Vec<Vec<u8>> = (0..64).map(|_| vec![1; MIB as usize]).collect();
    let full = freestone::stats().resident_bytes;
    drop(blocks);
    freestone::trim(0);
    assert!(freestone::stats().resident_bytes + 60 * MIB < full);
}

#[test]
fn layouts_get_their_alignment_and_keep_their_content() {
    let _guard = alone();
    for shift in 0..=21 {
        for size in [1, 24, 1000, 4096, 70_000, 3 << 20] {
            let layout = Layout::from_size_align(size, 1 << shift).unwrap();
            // SAFETY: every block is used within its layout and freed once with it.
            unsafe {
                let dirty = ALLOCATOR.alloc(layout);
                dirty.write_bytes(0xA5, size);
                ALLOCATOR.dealloc(dirty, layout);
                let block = ALLOCATOR.alloc_zeroed(layout);
                assert_eq!(block as usize % layout.align(), 0, "{layout:?}");
                assert!(std::slice::from_raw_parts(block, size).iter().all(|&byte| byte == 0), "{layout:?}");
                assert!(ALLOCATOR.usable_size(block) >= size);
                for (i, byte) in std::slice::from_raw_parts_mut(block, size).iter_mut().enumerate() {
                    *byte = (i * 31) as u8;
                }
                let grown = ALLOCATOR.realloc(block, layout, size * 3);
                assert_eq!(grown as usize % layout.align(), 0, "{layout:?}");
                assert!(
                    std::slice::from_raw_parts(grown, size).iter().enumerate().all(|(i, &byte)| byte == (i * 31) as u8),
                    "{layout:?}"
                );
                ALLOCATOR.dealloc(grown, Layout::from_size_align(size * 3, layout.align()).unwrap());
            }
        }
    }
}

#[test]
fn collections_keep_their_content_when_blocks_change_threads() {
    let _guard = alone();
    let (sender, receiver) = mpsc::sync_channel::<HashMap<u64, String>>(16);
    let consumer = thread::spawn(move || {
        let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
        for map in receiver {
            for (key, text) in map {
                assert_eq!(text, key.to_string().repeat((key % 50) as usize + 1));
                *seen.entry(key % 97).or_default() += 1;
            }
        }
        seen.values().sum::<usize>()
    });
    let producers: Vec<_> = (0..4u64)
        .map(|thread| {
            let sender = sender.clone();
            thread::spawn(move || {
                for round in 0..50 {
                    let keys = (0..100).map(|i| thread * 1_000_000 + round * 100 + i);
                    sender
                        .send(keys.map(|key| (key, key.to_string().repeat((key % 50) as usize + 1))).collect())
                        .unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    for producer in producers {
        producer.join().unwrap();
    }
    assert_eq!(consumer.join().unwrap(), 4 * 50 * 100);
    freestone::flush_thread();
}

#[test]
fn good_size_is_what_a_block_offers() {
    for bytes in (1..200_000).step_by(997) {
        let layout = Layout::from_size_align(bytes, 1).unwrap();
        // SAFETY: freed once with its layout.
        unsafe {
            let block = ALLOCATOR.alloc(layout);
            // The hardened build checks what lies behind the bytes that were asked for.
            let usable = if cfg!(feature = "hardened") { bytes } else { freestone::good_size(bytes) };
            assert_eq!(ALLOCATOR.usable_size(block), usable, "{bytes}");
            ALLOCATOR.dealloc(block, layout);
        }
    }
}

#[test]
fn the_hard_limit_makes_allocations_fail_and_frees_work() {
    let _guard = alone();
    freestone::trim(0); // what other tests freed is charged too, and would serve the blocks below
    let held = freestone::stats().charged_bytes;
    freestone::set_limits(None, Some(held + 32 * MIB)).unwrap();
    assert_eq!(freestone::limits(), (None, Some(held + 32 * MIB)));
    let mut blocks: Vec<Vec<u8>> = Vec::with_capacity(256);
    let refused = (0..256).any(|_| {
        let mut block = Vec::new();
        let status = block.try_reserve_exact(MIB as usize);
        blocks.push(block);
        status.is_err()
    });
    let charged = freestone::stats().charged_bytes;
    freestone::set_limits(None, None).unwrap();
    assert!(refused && charged <= held + 32 * MIB, "{refused} {charged} {held}");
    assert!(freestone::stats().failed_allocations > 0);
    drop(blocks);
    assert_eq!(freestone::set_limits(Some(2), Some(1)), Err(Error::BadLimits { soft: 2, hard: 1 }));
}

#[test]
fn options_are_read_and_changed_and_bad_ones_named() {
    let old = freestone::option("dirty_decay_ms").unwrap();
    freestone::set_option("dirty_decay_ms", "123").unwrap();
    assert_eq!(freestone::option("dirty_decay_ms").unwrap(), "123");
    freestone::set_option("dirty_decay_ms", &old).unwrap();
    assert_eq!(freestone::option("no_such"), Err(Error::UnknownOption("no_such".into())));
    let error = freestone::set_option("dirty_decay_ms", "soon").unwrap_err();
    assert!(error.to_string().contains("dirty_decay_ms") && error.to_string().contains("soon"), "{error}");
}

#[test]
fn statistics_are_written_in_every_format() {
    let _guard = alone();
    for (format, mark) in
        [(Format::Text, "live"), (Format::Json, "{"), (Format::Xml, "<malloc"), (Format::OpenMetrics, "# EOF")]
    {
        let path = std::env::temp_dir().join(format!("freestone-stats-{}-{format:?}", std::process::id()));
        freestone::write_stats(std::fs::File::create(&path).unwrap(), format).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(text.contains(mark), "{format:?}: {text}");
    }
}

/// The bytes of all stacks of a profile in the format `collapsed`: the last word of each line.
fn profiled_bytes() -> u64 {
    let path = std::env::temp_dir().join(format!("freestone-profile-{}", std::process::id()));
    freestone::profile::dump(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    text.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[test]
fn a_profile_estimates_what_is_live() {
    let _guard = alone();
    freestone::set_option("prof_sample_bytes", "64k").unwrap();
    freestone::set_option("prof_format", "collapsed").unwrap();
    freestone::profile::start();
    assert!(freestone::profile::is_active());
    let blocks: Vec<Box<[u8; 1000]>> = (0..64_000).map(|_| Box::new([7; 1000])).collect();
    let live = profiled_bytes();
    drop(blocks);
    let left = profiled_bytes();
    freestone::profile::stop();
    assert!(!freestone::profile::is_active());
    // About 1000 samples: a standard error of 3 %.
    assert!((48_000_000..80_000_000).contains(&live), "{live}");
    assert!(left < live / 8, "{left} of {live}");
    assert_eq!(freestone::profile::dump("/no/such/folder/file").unwrap_err().raw_os_error(), Some(5));
}

/// What C code in this program gets from malloc.
#[test]
fn c_code_is_served_exactly_when_the_feature_override_is_on() {
    extern "C" {
        fn strdup(text: *const std::ffi::c_char) -> *mut std::ffi::c_char;
        fn free(block: *mut std::ffi::c_void);
    }
    let _guard = alone();
    let text = std::ffi::CString::new("x".repeat(2000)).unwrap();
    let before = freestone::stats().live_bytes;
    // SAFETY: strdup takes a text that ends with 0; each copy is freed once.
    let copies: Vec<_> = (0..1000).map(|_| unsafe { strdup(text.as_ptr()) }).collect();
    let grown = freestone::stats().live_bytes - before;
    assert_eq!(grown >= 2_000_000, cfg!(feature = "override"), "{grown}");
    for copy in copies {
        // SAFETY: as above.
        unsafe { free(copy.cast()) };
    }
}
