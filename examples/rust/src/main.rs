//! A word index with Freestone as the global allocator: what it holds, and what a trim gives back.

use std::collections::HashMap;

use freestone::Freestone;

#[global_allocator]
static ALLOCATOR: Freestone = Freestone;

fn print(when: &str) {
    let heap = freestone::stats();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "{when:<14} live {:6.1} MiB   resident {:6.1} MiB",
        mib(heap.live_bytes),
        mib(heap.resident_bytes)
    );
}

fn main() -> Result<(), freestone::Error> {
    freestone::set_option("dirty_decay_ms", "500")?;
    println!("Freestone {}", freestone::version());
    print("at start");
    let index: HashMap<String, Vec<u32>> = (0..100_000)
        .map(|word| (format!("word {word}"), (0..word % 20).collect()))
        .collect();
    print("index built");
    println!(
        "{} words, {} places",
        index.len(),
        index.values().map(Vec::len).sum::<usize>()
    );
    drop(index);
    freestone::trim(0);
    print("after a trim");
    Ok(())
}
