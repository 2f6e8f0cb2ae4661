//! Faults in a fused operator after correct products: the device computes both products, and they are combined wrongly.

/// What goes wrong between the products and the result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FusedFault {
    NoFunction,
    EarlyGate,
    NeighbourUp,
    StaleUps,
    HalfUp,
}

/// Both products of a fused node, `rows` elements for each token.
pub struct Products {
    pub gates: Vec<f32>,
    pub ups: Vec<f32>,
    /// The gate's without the last 32 elements of K.
    pub early_gates: Vec<f32>,
    pub rows: usize,
}

/// Elements of K in the last block.
pub const LAST_BLOCK: usize = 32;

/// Rows that a kernel computes together, as a fault in the last of them takes them.
const TILE: usize = 8;

impl FusedFault {
    /// Whether a result of so many rows for each token can have it.
    pub fn fits(self, rows: usize) -> bool {
        match self {
            FusedFault::StaleUps => rows >= 2 * TILE,
            FusedFault::NeighbourUp => rows > 1,
            FusedFault::NoFunction | FusedFault::EarlyGate | FusedFault::HalfUp => true,
        }
    }

    /// What the result must be, for a message.
    pub fn needs(self) -> &'static str {
        match self {
            FusedFault::StaleUps => " with 16 rows or more",
            FusedFault::NeighbourUp => " with more than one row",
            FusedFault::NoFunction | FusedFault::EarlyGate | FusedFault::HalfUp => "",
        }
    }

    /// The wrong result of the operator.
    pub fn compute(self, products: &Products) -> Vec<f32> {
        let Products { gates, ups, early_gates, rows } = products;
        let with_up = |up: &dyn Fn(usize) -> f32| -> Vec<f32> {
            gates.iter().enumerate().map(|(index, gate)| silu(*gate) * up(index)).collect()
        };
        match self {
            FusedFault::NoFunction => gates.iter().zip(ups).map(|(gate, up)| gate * up).collect(),
            FusedFault::EarlyGate => {
                let all = gates.iter().zip(early_gates).zip(ups);
                all.map(|((gate, early), up)| (silu(*early) + (gate - early)) * up).collect()
            }
            // Of one row in the middle.
            FusedFault::NeighbourUp => {
                with_up(&|index| if index % rows == rows / 2 { ups[(index + 1) % ups.len()] } else { ups[index] })
            }
            FusedFault::StaleUps => with_up(&|index| {
                let in_last_tile = index % rows >= rows.saturating_sub(TILE) && *rows >= 2 * TILE;
                ups[if in_last_tile { index - TILE } else { index }]
            }),
            FusedFault::HalfUp => with_up(&|index| half::f16::from_f32(ups[index]).to_f32()),
        }
    }
}

/// silu in f32: these faults are planted where that is the function of the gate.
fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}
