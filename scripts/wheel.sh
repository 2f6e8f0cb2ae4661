#!/usr/bin/env bash
# Builds the wheel, installs it in a clean Python environment, and runs its tests and the example of
# crates/python/README.md there.
#
#   scripts/wheel.sh [--if-possible] [PYTHON]
#
#   --if-possible says that nothing was tried, instead of failing, where maturin or numpy cannot be had
#
# The profile and the features are those of the tests, whose compiled crates are used again. For a release, build with
# --release and without features.
set -euo pipefail
cd "$(dirname "$0")/.."

python=python3
if_possible=no
for argument in "$@"; do
    case "$argument" in
        --if-possible) if_possible=yes ;;
        *) python="$argument" ;;
    esac
done
work="$PWD/target/wheel"
pip=(-m pip install --quiet --disable-pip-version-check)

rm -rf "$work"
mkdir -p "$work"
if ! "$python" -m venv "$work/build" 2>"$work/log" || ! "$python" -m venv "$work/clean" 2>"$work/log" ||
    ! "$work/build/bin/python" "${pip[@]}" "maturin==1.16.*" 2>>"$work/log" || ! "$work/clean/bin/python" "${pip[@]}" numpy 2>>"$work/log"; then
    echo "not run: tests of the Python package, which need Python's venv and pip, and the packages maturin and numpy: $(tail -n 1 "$work/log")"
    [ "$if_possible" = yes ]
    exit
fi

(cd crates/python && "$work/build/bin/maturin" build --locked --quiet --profile dev --features samples --interpreter "$work/build/bin/python" --out "$work/dist")
"$work/clean/bin/python" "${pip[@]}" --no-index "$work"/dist/trueup-*.whl
"$work/clean/bin/python" -m unittest discover --quiet -s crates/python/tests

# The example, where a model is at the place that it names.
mkdir -p "$work/example/path/to"
ln -s "$PWD/fixtures/stories-1M" "$work/example/path/to/hf-model"
scripts/readme_block.sh 1 crates/python/README.md >"$work/example/example.py"
(cd "$work/example" && "$work/clean/bin/python" example.py) | tee "$work/example/said"
tail -n 1 "$work/example/said" | grep -q 'pass .* within their error bounds'
