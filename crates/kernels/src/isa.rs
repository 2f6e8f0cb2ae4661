//! Instruction sets for which kernels are written, and the proof that this machine has one.

#[cfg(target_arch = "aarch64")]
use std::arch::is_aarch64_feature_detected;
use std::fmt;
#[cfg(feature = "samples")]
use trueup_guard::Side;

/// An instruction set for which kernels are written. All of them give the same bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isa {
    /// x86-64 with AVX-512 F, BW, VL and VNNI, and what AVX2 stands for.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// x86-64 with AVX-VNNI, and what AVX2 stands for.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// x86-64 with AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// x86-64 with SSE4.1 and SSSE3, without fused multiply-adds.
    #[cfg(target_arch = "x86_64")]
    Sse41,
    /// aarch64 with NEON and the dot products of bytes of ARMv8.2.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// What the compiler makes of the readable rule.
    Scalar,
}

impl Isa {
    /// Every set of this build, the fastest first.
    pub const ALL: &'static [Isa] = &[
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512,
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2,
        #[cfg(target_arch = "x86_64")]
        Isa::Sse41,
        #[cfg(target_arch = "aarch64")]
        Isa::Neon,
        Isa::Scalar,
    ];

    /// The sets that this machine has, the fastest first.
    pub fn available() -> Vec<Isa> {
        Isa::ALL.iter().copied().filter(|isa| isa.is_available()).collect()
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => Isa::Avx2.is_available() && is_x86_feature_detected!("avxvnni"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Sse41 => is_x86_feature_detected!("sse4.1") && is_x86_feature_detected!("ssse3"),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("dotprod"),
            Isa::Scalar => true,
        }
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => "avx-vnni",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::Sse41 => "sse41",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => "neon",
            Isa::Scalar => "scalar",
        }
    }

    /// The set of that name, if this build has it.
    pub fn from_name(name: &str) -> Option<Isa> {
        Isa::ALL.iter().copied().find(|isa| isa.name() == name)
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An instruction set that this machine was found to have. Kernels take nothing else, which is what makes calling them
/// sound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instructions {
    isa: Isa,
    /// Where kernels get copies of their arguments between guard pages.
    #[cfg(feature = "samples")]
    guards: Option<Side>,
}

impl Instructions {
    /// The set, if this machine has it.
    pub fn of(isa: Isa) -> Option<Instructions> {
        let instructions = Instructions {
            isa,
            #[cfg(feature = "samples")]
            guards: None,
        };
        isa.is_available().then_some(instructions)
    }

    /// Which set.
    pub fn isa(self) -> Isa {
        self.isa
    }

    /// The same set, whose kernels get copies of their arguments with this side at a guard page.
    #[cfg(feature = "samples")]
    pub fn with_guards(self, guards: Option<Side>) -> Instructions {
        Instructions { guards, ..self }
    }

    /// Which side of the arguments lies at a guard page.
    #[cfg(feature = "samples")]
    pub fn guards(self) -> Option<Side> {
        self.guards
    }
}
