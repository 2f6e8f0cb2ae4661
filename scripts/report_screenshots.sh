#!/usr/bin/env bash
# Pictures of reports with and without planted faults, light, dark and as wide as a phone: scripts/report_screenshots.sh
# FOLDER Needs Chromium.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
cargo run --quiet -p trueup-verify --example planted_reports -- "$folder"
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
shoot() { # page theme width height
    chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
        --disable-component-update --disable-sync --hide-scrollbars --user-data-dir="$profile" --window-size="$3,$4" \
        --screenshot="$folder/$1-$2-$3.png" "file://$folder/$1.html?theme=$2" 2>/dev/null
    echo "$folder/$1-$2-$3.png"
}
for page in pass unwritten precision layers; do
    shoot "$page" light 1280 4200
done
shoot unwritten dark 1280 4200
shoot unwritten light 390 7000
shoot layers light 390 2600
