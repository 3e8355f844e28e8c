//! The heap profiler: which calls hold the memory, by samples of allocations.
//!
//! One allocation in so many bytes is sampled (option `prof_sample_bytes`); the option `prof_format` says how a profile
//! is written. `freestone profile diff A B` and `pprof` read what [`dump`] writes.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::ffi;

/// Begins to sample: the calling thread at once, others from the next refill of their cache on.
pub fn start() {
    // SAFETY: may be called at any time.
    unsafe { ffi::freestone_prof_start() }
}

/// Ends sampling. What was sampled stays in the profile until its block is freed.
pub fn stop() {
    // SAFETY: may be called at any time.
    unsafe { ffi::freestone_prof_stop() }
}

/// Whether allocations are sampled now.
pub fn is_active() -> bool {
    // SAFETY: may be called at any time.
    unsafe { ffi::freestone_prof_is_active() != 0 }
}

/// Writes the profile to a file.
pub fn dump(path: impl AsRef<Path>) -> io::Result<()> {
    let path = CString::new(path.as_ref().as_os_str().as_bytes())?;
    // SAFETY: a text that ends with 0.
    match unsafe { ffi::freestone_prof_dump(path.as_ptr()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Looks for sampled blocks that nothing points to, prints them to standard error, and returns how many there are.
/// Other threads stand still meanwhile.
pub fn leak_check() -> usize {
    // SAFETY: may be called at any time.
    unsafe { ffi::freestone_leak_check() }
}
