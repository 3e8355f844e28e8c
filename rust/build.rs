//! Compiles the allocator's C++ sources, which need no C++ runtime, into the crate; or links the installed library.

use std::path::{Path, PathBuf};
use std::{env, fs};

const FLAGS: [&str; 8] = [
    "-fno-rtti",
    "-fno-builtin-malloc",
    "-fno-builtin-calloc",
    "-fno-builtin-free",
    "-fno-threadsafe-statics",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-ftls-model=initial-exec",
];

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

fn has_feature(name: &str) -> bool {
    env::var_os(format!("CARGO_FEATURE_{name}")).is_some()
}

/// What follows `set(NAME ` in the allocator's own build, up to the closing parenthesis.
fn setting<'a>(build: &'a str, name: &str) -> &'a str {
    let opening = format!("set({name} ");
    let opening = if build.contains(&opening) { opening } else { format!("set({name}\n") };
    let (_, rest) = build.split_once(&opening).unwrap_or_else(|| panic!("allocator/CMakeLists.txt sets {name}"));
    rest.split_once(')').map_or(rest, |(value, _)| value)
}

fn compile(root: &Path) {
    let settings =
        fs::read_to_string(root.join("CMakeLists.txt")).expect("allocator/CMakeLists.txt is part of the crate");
    let mut build = cc::Build::new();
    build.cpp(true).cpp_link_stdlib(None).std("c++20").pic(true).warnings(false).cargo_metadata(false);
    build.include(root.join("src")).include(root.join("include"));
    build.define("_GNU_SOURCE", None);
    build.define("FREESTONE_VERSION", format!("\"{}\"", variable("CARGO_PKG_VERSION")).as_str());
    build.define("FREESTONE_PREFIXED", if has_feature("OVERRIDE") { "0" } else { "1" });
    if has_feature("HARDENED") {
        let mitigations = setting(&settings, "FREESTONE_MITIGATIONS").split_whitespace().next();
        build.define("FREESTONE_BUILD", "\"hardened\"").define("FREESTONE_MITIGATIONS", mitigations);
    } else {
        build.define("FREESTONE_BUILD", "\"fast\"");
    }
    for flag in FLAGS {
        build.flag(flag);
    }

    // The nothrow forms of operator new catch what a new-handler throws. Without the C names there are no operators.
    let mut operators = build.clone();
    build.flag("-fno-exceptions");
    for source in setting(&settings, "FREESTONE_SOURCES").split_whitespace() {
        if !source.ends_with("operator_new.cc") {
            build.file(root.join(source));
        } else if has_feature("OVERRIDE") {
            for object in operators.file(root.join(source)).compile_intermediates() {
                build.object(object);
            }
        }
    }
    build.compile("freestone");
    for part in ["CMakeLists.txt", "include", "src"] {
        println!("cargo:rerun-if-changed={}", root.join(part).display());
    }
}

fn main() {
    assert!(
        variable("CARGO_CFG_TARGET_OS") == "linux" && variable("CARGO_CFG_TARGET_ENV") == "gnu",
        "freestone runs on Linux with glibc; this target is {}",
        variable("TARGET")
    );
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("allocator");
    let mut library = "freestone";
    println!("cargo:rerun-if-env-changed=FREESTONE_LIB_DIR");
    if let Ok(folder) = env::var("FREESTONE_LIB_DIR") {
        assert!(
            has_feature("OVERRIDE"),
            "FREESTONE_LIB_DIR needs the feature override: the installed library has the C names"
        );
        if has_feature("HARDENED") {
            library = "freestone-hardened";
        }
        println!("cargo:rerun-if-changed={folder}/lib{library}.a");
        println!("cargo:rustc-link-search=native={folder}");
    } else {
        compile(&root);
        println!("cargo:rustc-link-search=native={}", variable("OUT_DIR"));
    }
    // Whole: no part of the allocator may be left out and its calls be answered by another malloc.
    println!("cargo:rustc-link-lib=static:+whole-archive={library}");
    println!("cargo:include={}", root.join("include").display());
}
