//! Hints to the processor.

#![expect(unsafe_code, reason = "a hint is an instruction of the processor")]

/// Asks the processor to load the cache line of the byte `at`, while the program continues. Does
/// nothing on processors for which no hint is known.
#[inline]
pub(crate) fn prefetch(bytes: &[u8], at: usize) {
    let Some(byte) = bytes.get(at) else { return };
    let address = std::ptr::from_ref(byte);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads no memory for the program and cannot fault; the address is valid.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above; the instruction changes no register, no flag and no memory.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{address}]", address = in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_place_may_be_asked_for() {
        for at in [0, 1, 63, 64, usize::MAX] {
            prefetch(&[7; 64], at);
        }
        prefetch(&[], 0);
    }
}
