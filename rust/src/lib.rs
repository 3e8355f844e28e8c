//! Freestone, a memory allocator for Linux, as the global allocator of a Rust program.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: freestone::Freestone = freestone::Freestone;
//!
//! fn main() {
//!     let numbers: Vec<u64> = (0..1_000_000).collect();
//!     assert!(freestone::stats().live_bytes >= 8_000_000);
//!     drop(numbers);
//!     freestone::trim(0);
//! }
//! ```
//!
//! With the feature `override` the C functions (`malloc`, `free`, ...) of the whole program are Freestone's too, so
//! memory of its C and C++ libraries is served and counted as well.
//!
//! Options are read from the environment variable `FREESTONE_CONF` ("key:value,key:value"); those that can be changed
//! while the program runs are reached by [`set_option`].

mod ffi;
pub mod profile;

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_void, CStr, CString};
use std::os::fd::{AsFd, AsRawFd};
use std::{fmt, io, ptr};

/// The allocator: `#[global_allocator] static ALLOCATOR: Freestone = Freestone;`
#[derive(Clone, Copy, Debug, Default)]
pub struct Freestone;

/// What every block is aligned to.
const MIN_ALIGNMENT: usize = 16;

// SAFETY: blocks come from and go back to one allocator, which never unwinds, and have the size and alignment asked
// for.
unsafe impl GlobalAlloc for Freestone {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MIN_ALIGNMENT {
            ffi::malloc(layout.size()).cast()
        } else {
            ffi::aligned_alloc(layout.align(), layout.size()).cast()
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.align() <= MIN_ALIGNMENT {
            ffi::free_sized(block.cast(), layout.size());
        } else {
            ffi::free_aligned_sized(block.cast(), layout.align(), layout.size());
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MIN_ALIGNMENT {
            return ffi::calloc(1, layout.size()).cast();
        }
        let block = self.alloc(layout);
        if !block.is_null() {
            ptr::write_bytes(block, 0, layout.size());
        }
        block
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if layout.align() <= MIN_ALIGNMENT {
            return ffi::realloc(block.cast(), new_size).cast();
        }
        // C's realloc keeps no alignment above 16.
        let moved = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
        if !moved.is_null() {
            ptr::copy_nonoverlapping(block, moved, layout.size().min(new_size));
            self.dealloc(block, layout);
        }
        moved
    }
}

impl Freestone {
    /// How many bytes of a block may be used: at least what was asked for.
    ///
    /// # Safety
    /// `block` is a live block of this allocator.
    pub unsafe fn usable_size(&self, block: *const u8) -> usize {
        ffi::malloc_usable_size(block.cast_mut().cast::<c_void>())
    }
}

/// Why a call was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no option of that name.
    UnknownOption(String),
    /// The option does not take that value, or not while the program runs.
    BadValue { option: String, value: String },
    /// The soft limit lies above the hard one.
    BadLimits { soft: u64, hard: u64 },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnknownOption(name) => write!(f, "freestone has no option \"{name}\""),
            Error::BadValue { option, value } => {
                write!(f, "freestone's option {option} cannot be set to \"{value}\" now")
            }
            Error::BadLimits { soft, hard } => {
                write!(f, "a soft limit of {soft} bytes lies above the hard limit of {hard}")
            }
        }
    }
}

impl std::error::Error for Error {}

/// What the heap holds, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct Stats {
    version: u32,
    /// Threads that hold a cache.
    pub threads: u32,
    /// Handed out and not yet freed, counted by block size.
    pub live_bytes: u64,
    /// How many blocks that is.
    pub live_blocks: u64,
    /// Free, in thread caches and run caches.
    pub cached_bytes: u64,
    /// Free blocks inside slabs.
    pub slab_free_bytes: u64,
    /// Free spans with memory behind them.
    pub dirty_bytes: u64,
    /// Free spans without memory.
    pub clean_bytes: u64,
    /// Blocks with a mapping of their own, part of `live_bytes`.
    pub mapped_bytes: u64,
    /// Accessible for the allocator's own records.
    pub metadata_bytes: u64,
    /// Accessible heap, own mappings excluded.
    pub committed_bytes: u64,
    /// Address space.
    pub reserved_bytes: u64,
    /// Of the process.
    pub resident_bytes: u64,
    /// Given back to the kernel since the start.
    pub purged_bytes: u64,
    /// How often.
    pub purge_calls: u64,
    /// Free, in thread caches.
    pub thread_cached_bytes: u64,
    /// Free, in run caches.
    pub run_cached_bytes: u64,
    /// Blocks above the size classes, part of `live_bytes`.
    pub large_bytes: u64,
    /// Spans of heap objects.
    pub heap_object_bytes: u64,
    /// Records that are in memory.
    pub metadata_resident_bytes: u64,
    /// What limits are about.
    pub charged_bytes: u64,
    /// The highest `charged_bytes` so far.
    pub peak_bytes: u64,
    /// The highest of the process.
    pub peak_resident_bytes: u64,
    /// 0: none.
    pub limit_soft_bytes: u64,
    /// 0: none.
    pub limit_hard_bytes: u64,
    /// How often.
    pub soft_limit_crossings: u64,
    /// How often.
    pub pressure_reactions: u64,
    /// How often everything free was given back because an allocation found no memory.
    pub reclaims: u64,
    /// How many.
    pub failed_allocations: u64,
    /// How many, of all kinds.
    pub system_calls: u64,
}

/// What the heap holds now. Takes about 0.1 ms.
pub fn stats() -> Stats {
    let mut stats = Stats { version: ffi::STATS_VERSION, ..Stats::default() };
    // SAFETY: the structure is the one of the version that it names.
    let status = unsafe { ffi::freestone_get_stats(&mut stats) };
    assert_eq!(status, 0, "the crate and the library disagree on the version of the statistics");
    stats
}

/// How statistics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text = 0,
    /// Per size class and per thread too.
    Json = 1,
    /// As `malloc_info` prints it.
    Xml = 2,
    /// For Prometheus.
    OpenMetrics = 3,
}

/// Writes the statistics, and more than [`stats`] has, to an open file.
pub fn write_stats(file: impl AsFd, format: Format) -> io::Result<()> {
    // SAFETY: the descriptor is open while it is borrowed.
    match unsafe { ffi::freestone_stats_write(file.as_fd().as_raw_fd(), format as c_int) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Gives free memory back to the kernel, keeping up to `keep_bytes` for reuse. Whether anything was given.
pub fn trim(keep_bytes: usize) -> bool {
    // SAFETY: may be called at any time.
    unsafe { ffi::freestone_trim(keep_bytes) != 0 }
}

/// Gives the calling thread's cache back, before it sleeps for long.
pub fn flush_thread() {
    // SAFETY: may be called at any time.
    unsafe { ffi::freestone_flush_thread() }
}

/// The bytes that an allocation of `bytes` really offers.
pub fn good_size(bytes: usize) -> usize {
    // SAFETY: may be called at any time.
    unsafe { ffi::freestone_good_size(bytes) }
}

/// Whether Freestone serves this process; not so with `FREESTONE_DISABLE=1` in the environment.
pub fn is_active() -> bool {
    // SAFETY: may be called at any time.
    unsafe { ffi::freestone_is_active() != 0 }
}

/// The version of the library.
pub fn version() -> &'static str {
    // SAFETY: a constant text.
    unsafe { CStr::from_ptr(ffi::freestone_version()) }.to_str().unwrap_or("")
}

/// The soft and the hard limit on what the heap holds; `None`: no limit.
pub fn limits() -> (Option<u64>, Option<u64>) {
    let mut limits = ffi::Limits { version: ffi::LIMITS_VERSION, reserved: 0, soft_bytes: 0, hard_bytes: 0 };
    // SAFETY: the structure is the one of the version that it names.
    unsafe { ffi::freestone_get_limits(&mut limits) };
    let some = |bytes| (bytes != 0).then_some(bytes);
    (some(limits.soft_bytes), some(limits.hard_bytes))
}

/// Limits what the heap holds. Above the soft limit everything free goes back to the kernel; the hard limit is never
/// exceeded: allocations fail instead.
pub fn set_limits(soft: Option<u64>, hard: Option<u64>) -> Result<(), Error> {
    let (soft, hard) = (soft.unwrap_or(0), hard.unwrap_or(0));
    let limits = ffi::Limits { version: ffi::LIMITS_VERSION, reserved: 0, soft_bytes: soft, hard_bytes: hard };
    // SAFETY: the structure is the one of the version that it names.
    match unsafe { ffi::freestone_set_limits(&limits) } {
        0 => Ok(()),
        _ => Err(Error::BadLimits { soft, hard }),
    }
}

/// Whether the allocator's records agree with each other, or a sentence that says where not.
/// No other thread may allocate or free meanwhile.
///
/// ```
/// # #[global_allocator]
/// # static ALLOCATOR: freestone::Freestone = freestone::Freestone;
/// let mut texts: Vec<String> = (0..10_000).map(|i| "x".repeat(i % 700)).collect();
/// texts.retain(|text| text.len() % 3 == 0);
/// freestone::validate().unwrap();
/// ```
pub fn validate() -> Result<(), String> {
    let mut damage = ptr::null();
    // SAFETY: the pointer is written when the result is not 0, to a constant text.
    unsafe {
        match ffi::freestone_validate(&mut damage) {
            0 => Ok(()),
            _ => Err(CStr::from_ptr(damage).to_string_lossy().into_owned()),
        }
    }
}

/// The value of an option.
pub fn option(name: &str) -> Result<String, Error> {
    let unknown = || Error::UnknownOption(name.to_owned());
    let c_name = CString::new(name).map_err(|_| unknown())?;
    let mut text = [0; 512];
    // SAFETY: the buffer has the size that is told, and longer values than options have.
    match unsafe { ffi::freestone_option_get(c_name.as_ptr(), text.as_mut_ptr(), text.len()) } {
        // SAFETY: a text that ends with 0 was written.
        0 => Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()),
        _ => Err(unknown()),
    }
}

/// Changes an option that takes effect while the program runs.
pub fn set_option(name: &str, value: &str) -> Result<(), Error> {
    let bad = || Error::BadValue { option: name.to_owned(), value: value.to_owned() };
    let c_name = CString::new(name).map_err(|_| Error::UnknownOption(name.to_owned()))?;
    let c_value = CString::new(value).map_err(|_| bad())?;
    option(name)?;
    // SAFETY: both are texts that end with 0.
    match unsafe { ffi::freestone_option_set(c_name.as_ptr(), c_value.as_ptr()) } {
        0 => Ok(()),
        _ => Err(bad()),
    }
}
