#!/usr/bin/env bash
# All of .ci/run, and what takes longer or needs Python packages: files written by trueup, read by other programs, all
# cases of the operator suite, also on emulated NEON kernels and on the simulated card, there with sanitizers and with
# faults planted in kernels, the peak memory of convert and quantize on a model of 2.5 GB, a soak, and memcheck. Needs
# cargo-deny; runs Miri where that is installed. Downloads published models (about 500 MB); without them, their tests
# are skipped.
#
#   PYTHON=path/to/python scripts/full_check.sh     (packages: scripts/requirements.txt)
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"

# Download the published models that some tests need.
"$python" scripts/real_models.py || echo "skipped: tests of published models: their files could not be made"
.ci/run
scripts/dependencies.sh --required
scripts/miri.sh
scripts/neon.sh
scripts/neon.sh --operators
# The documentation as a book; the tests check its links and run its command blocks.
scripts/docs.sh
# The README's first block: the demo, as a new user runs it.
bash -euo pipefail -c "$(scripts/readme_block.sh 1)"
cargo build --locked --release -p trueup-cli -p trueup-npu-sim
cargo test --locked -p trueup-cli --test hostile -- --seed 2
cargo test --locked -p trueup-cli --test hostile -- --seed 3
cargo test --locked -p trueup-cli --test durability -- --seed 2 --rounds 20
# Another seed every day.
cargo test --locked -p trueup-tests --test fuzz -- --seconds 600 --seed "$(date +%Y%m%d)"
for seed in 1 2 3; do
    target/release/trueup ops test --dev cpu --seed "$seed" | tail -n 1
    target/release/trueup ops test --dev ref --seed "$seed" | tail -n 1
done
target/release/trueup ops test --dev cpu --no-repack | tail -n 1
target/release/trueup ops test --dev cpu --isa scalar --no-repack | tail -n 1
scripts/kernels.sh --assemble --cubin
cargo test --locked -p trueup-runtime --features cubin --lib device::cuda::kernels
scripts/cuda_sim.sh --sanitize --check
# All cases once, and samples of them with other numbers.
cargo test --locked -p trueup-tests --test cuda_sim -- --all --seed 1
cargo test --locked -p trueup-tests --test npu_sim -- --all --seed 1
for seed in 2 3; do
    cargo test --locked -p trueup-tests --test cuda_sim -- --seed "$seed"
    cargo test --locked -p trueup-tests --test npu_sim -- --seed "$seed"
done
cargo test --locked -p trueup-tests --test cuda_sim -- --sanitize
for ways in "" "--no-repack" "--matmul dequantize"; do
    # shellcheck disable=SC2086
    scripts/cuda_sim.sh --run target/release/trueup ops test --dev cuda-sim $ways | tail -n 1
done
cargo test --locked -p trueup-tests --test cuda_faults -- --all
PYTHON="$python" scripts/npu_support.sh --check target/release/trueup
"$python" scripts/check_gguf.py target/release/trueup
"$python" scripts/check_llama_cpp_models.py target/release/trueup
"$python" scripts/check_llama_cpp_traces.py target/release/trueup --every-value
# FastLLM's package is there for few machines: what it was not tried on is said.
"$python" scripts/check_flm.py target/release/trueup || [ "$?" = 3 ]
scripts/memory.sh target/release/trueup "$python"
scripts/memory_check.sh target/release/trueup "$python"
"$python" scripts/faults.py target/release/trueup --clean 200
scripts/soak.sh
scripts/memcheck.sh target/release/trueup
