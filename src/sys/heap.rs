//! The heap: dlmalloc for small blocks, a mapping of its own for each large one.
//!
//! Which `malloc` a static binary gets depends on the linker's C library. zig's puts a header of 16 bytes before each
//! block and rounds both up to a power of two, from slabs that each thread has for itself: texts and tree nodes, of
//! which a pod is made, take twice what they are. And not all leave a large zeroed block alone: one that writes the zeros
//! makes the 22 MiB resident that sled sets aside at its opening and never uses. A mapping is zero by itself, goes back
//! to the system when it is freed, and grows without being copied.
#![expect(unsafe_code, reason = "an allocator hands out memory")]

use dlmalloc::GlobalDlmalloc as Small;
use std::alloc::{GlobalAlloc, Layout};
use std::ptr;

/// From this size on. Below, a system call and whole pages for one block would cost more than they save.
const LARGE: usize = 128 * 1024;
/// The smallest page size there is: what every mapping is aligned to.
const PAGE: usize = 4096;

/// The allocator of the binary.
#[derive(Debug)]
pub struct Heap;

const fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= PAGE
}

fn map(len: usize) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let at = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if at == libc::MAP_FAILED { ptr::null_mut() } else { at.cast() }
}

// SAFETY: `is_large` depends on the layout alone, so that every block goes back to where it came from: dlmalloc,
// which keeps the contract, or munmap. Mappings are at least as aligned and as long as asked for.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return map(layout.size());
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { Small.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return map(layout.size());
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { Small.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_large(layout) {
            // SAFETY: `block` is a mapping of this size that nobody uses any more.
            unsafe { libc::munmap(block.cast(), layout.size()) };
            return;
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { Small.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that `size`, rounded up to the alignment, does not overflow.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (is_large(layout), is_large(new)) {
            // SAFETY: the caller's promises are passed on.
            (false, false) => unsafe { Small.realloc(block, layout, size) },
            (true, true) => {
                // SAFETY: `block` is a mapping of this size, and the caller forgets its address.
                let at = unsafe { libc::mremap(block.cast(), layout.size(), size, libc::MREMAP_MAYMOVE) };
                if at == libc::MAP_FAILED { ptr::null_mut() } else { at.cast() }
            }
            _ => {
                // SAFETY: both blocks are valid for the shorter of the two lengths and distinct; the old one is given
                // back with the layout it has.
                unsafe {
                    let to = self.alloc(new);
                    if !to.is_null() {
                        ptr::copy_nonoverlapping(block, to, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    to
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths on both sides of the border, so that every kind of change happens.
    const SIZES: [usize; 6] = [64, LARGE - 1, LARGE, 5 * LARGE, LARGE / 2, 3 * LARGE + 1];

    #[test]
    fn a_block_keeps_its_bytes_whatever_it_grows_and_shrinks_to() {
        let mut layout = Layout::from_size_align(SIZES[0], 16).unwrap();
        // SAFETY: each block is used within its size and given back once with the layout that it has by then.
        unsafe {
            let mut block = Heap.alloc_zeroed(layout);
            assert!(std::slice::from_raw_parts(block, layout.size()).iter().all(|byte| *byte == 0));
            block.write_bytes(7, layout.size());
            for size in SIZES {
                block = Heap.realloc(block, layout, size);
                let kept = layout.size().min(size);
                layout = Layout::from_size_align(size, 16).unwrap();
                assert!(block.addr().is_multiple_of(16));
                assert!(std::slice::from_raw_parts(block, kept).iter().all(|byte| *byte == 7), "{size}");
                block.write_bytes(7, size);
            }
            Heap.dealloc(block, layout);
        }
    }

    #[test]
    fn large_zeroed_blocks_are_not_resident() {
        let layout = Layout::from_size_align(64 << 20, 16).unwrap();
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        let before = resident();
        // SAFETY: the block is only looked at, and given back.
        unsafe {
            let block = Heap.alloc_zeroed(layout);
            assert_eq!(*block.add(layout.size() - 1), 0);
            let grown = resident().saturating_sub(before);
            Heap.dealloc(block, layout);
            // Tests that run beside take memory too, but not this much.
            assert!(grown < 32 << 10, "{grown} KiB");
        }
    }
}
