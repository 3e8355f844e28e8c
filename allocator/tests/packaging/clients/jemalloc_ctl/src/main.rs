// Asks through jemalloc's own Rust interface, and prints NAME=VALUE lines.
use tikv_jemalloc_ctl::{arenas, background_thread, epoch, opt, stats, version};

fn main() -> Result<(), tikv_jemalloc_ctl::Error> {
    let clock = epoch::mib()?;
    let allocated = stats::allocated::mib()?;
    clock.advance()?;
    let before = allocated.read()?;
    let held: Vec<Vec<u8>> = (0..1000).map(|_| vec![1; 10_000]).collect();
    println!("unchanged={}", allocated.read()? == before);
    clock.advance()?;
    println!("grown={}", allocated.read()? - before);
    println!("active={}", stats::active::read()?);
    println!("resident={}", stats::resident::read()?);
    println!("mapped={}", stats::mapped::read()?);
    println!("metadata={}", stats::metadata::read()?);
    println!("retained={}", stats::retained::read()?);
    println!("narenas={}", arenas::narenas::read()?);
    println!("abort={}", opt::abort::read()?);
    println!("version={}", version::read()?);
    background_thread::write(true)?;
    println!("background_thread={}", background_thread::read()?);
    drop(held);
    Ok(())
}
