//! The C interface, `freestone.h`, as far as this crate offers it.

use std::ffi::{c_char, c_int, c_void};

extern "C" {
    #[cfg_attr(not(feature = "override"), link_name = "freestone_malloc")]
    pub fn malloc(bytes: usize) -> *mut c_void;
    #[cfg_attr(not(feature = "override"), link_name = "freestone_calloc")]
    pub fn calloc(count: usize, each: usize) -> *mut c_void;
    #[cfg_attr(not(feature = "override"), link_name = "freestone_realloc")]
    pub fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void;
    #[cfg_attr(not(feature = "override"), link_name = "freestone_aligned_alloc")]
    pub fn aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void;
    #[cfg_attr(not(feature = "override"), link_name = "freestone_free_sized")]
    pub fn free_sized(block: *mut c_void, bytes: usize);
    #[cfg_attr(not(feature = "override"), link_name = "freestone_free_aligned_sized")]
    pub fn free_aligned_sized(block: *mut c_void, alignment: usize, bytes: usize);
    #[cfg_attr(not(feature = "override"), link_name = "freestone_malloc_usable_size")]
    pub fn malloc_usable_size(block: *mut c_void) -> usize;

    pub fn freestone_version() -> *const c_char;
    pub fn freestone_is_active() -> c_int;
    pub fn freestone_good_size(bytes: usize) -> usize;
    pub fn freestone_trim(keep_bytes: usize) -> c_int;
    pub fn freestone_flush_thread();
    pub fn freestone_get_stats(stats: *mut crate::Stats) -> c_int;
    pub fn freestone_stats_write(file: c_int, format: c_int) -> c_int;
    pub fn freestone_set_limits(limits: *const Limits) -> c_int;
    pub fn freestone_get_limits(limits: *mut Limits) -> c_int;
    pub fn freestone_validate(damage: *mut *const c_char) -> c_int;
    pub fn freestone_prof_start();
    pub fn freestone_prof_stop();
    pub fn freestone_prof_is_active() -> c_int;
    pub fn freestone_prof_dump(path: *const c_char) -> c_int;
    pub fn freestone_leak_check() -> usize;
    pub fn freestone_option_get(name: *const c_char, value: *mut c_char, capacity: usize) -> c_int;
    pub fn freestone_option_set(name: *const c_char, value: *const c_char) -> c_int;
}

pub const STATS_VERSION: u32 = 2;
pub const LIMITS_VERSION: u32 = 1;

#[repr(C)]
pub struct Limits {
    pub version: u32,
    pub reserved: u32,
    pub soft_bytes: u64,
    pub hard_bytes: u64,
}
