//! Compiles the allocator's C++ sources, which need no C++ runtime, into the crate.

use std::path::PathBuf;
use std::{env, fs};

/// The sources as the allocator's own build lists them: the lines of `set(FREESTONE_SOURCES ...)`.
fn sources(list: &str) -> Vec<&str> {
    let start = list
        .find("set(FREESTONE_SOURCES")
        .expect("allocator/CMakeLists.txt lists FREESTONE_SOURCES");
    let end = start + list[start..].find(')').expect("the list of sources ends");
    list[start..end]
        .lines()
        .map(str::trim)
        .filter(|line| line.ends_with(".cc"))
        .collect()
}

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("allocator");
    let list = fs::read_to_string(root.join("CMakeLists.txt"))
        .expect("allocator/CMakeLists.txt is part of the crate");
    let replaces_malloc = env::var_os("CARGO_FEATURE_OVERRIDE").is_some();
    assert!(
        env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux")
            && env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu"),
        "freestone runs on Linux with glibc; this target is {}",
        env::var("TARGET").unwrap_or_default()
    );

    let mut build = cc::Build::new();
    build
        .cpp(true)
        .cpp_link_stdlib(None)
        .std("c++20")
        .opt_level(2)
        .pic(true)
        .warnings(false)
        .cargo_metadata(false);
    build
        .include(root.join("src"))
        .include(root.join("include"));
    build
        .define("_GNU_SOURCE", None)
        .define("FREESTONE_BUILD", "\"fast\"");
    build.define(
        "FREESTONE_VERSION",
        format!("\"{}\"", env::var("CARGO_PKG_VERSION").unwrap()).as_str(),
    );
    build.define(
        "FREESTONE_PREFIXED",
        if replaces_malloc { "0" } else { "1" },
    );
    for flag in [
        "-fno-rtti",
        "-fno-builtin-malloc",
        "-fno-builtin-calloc",
        "-fno-builtin-free",
        "-fno-threadsafe-statics",
        "-fvisibility=hidden",
        "-fno-stack-protector",
        "-ftls-model=initial-exec",
    ] {
        build.flag(flag);
    }

    let mut with_exceptions = build.clone();
    build.flag("-fno-exceptions");
    let mut objects = Vec::new();
    for source in sources(&list) {
        if !source.ends_with("operator_new.cc") {
            build.file(root.join(source));
        } else if replaces_malloc {
            with_exceptions.file(root.join(source));
            objects = with_exceptions.compile_intermediates();
        }
    }
    for object in objects {
        build.object(object);
    }
    build.compile("freestone");

    for part in ["CMakeLists.txt", "include", "src"] {
        println!("cargo:rerun-if-changed={}", root.join(part).display());
    }
    println!(
        "cargo:rustc-link-search=native={}",
        env::var("OUT_DIR").unwrap()
    );
    // Whole: no part of the allocator may be left out and its calls be answered by another malloc.
    println!("cargo:rustc-link-lib=static:+whole-archive=freestone");
    println!("cargo:include={}", root.join("include").display());
}
