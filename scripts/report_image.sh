#!/usr/bin/env bash
# Makes docs/images/report.png, the picture in the README: the report of a verification that finds an injected fault.
#
#   scripts/report_image.sh TRUEUP [OUTPUT]
#
# Converts and quantizes fixtures/stories-1M, injects the fault block-scale at ffn_out-2, and takes a screenshot of the
# HTML report from the verdict to the map of operators. The facts about the run in between are hidden, so that the
# picture stays short. Needs Chromium and pngquant.
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: $0 TRUEUP [OUTPUT]" >&2; exit 2; }
trueup=$(realpath "$1")
root=$(cd "$(dirname "$0")/.." && pwd)
output=$(realpath -m "${2:-$root/docs/images/report.png}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"$trueup" convert --quiet "$root/fixtures/stories-1M" stories-1M.gguf >/dev/null
"$trueup" quantize --quiet -b 4 stories-1M.gguf stories-1M-q4_0.gguf >/dev/null
code=0
"$trueup" verify --quiet stories-1M-q4_0.gguf -p "Once upon a time" --inject-fault block-scale@ffn_out-2 \
    --html report.html >/dev/null || code=$?
[ "$code" = 1 ] || { echo "verify ended with exit code $code; expected 1, a failed comparison" >&2; exit 1; }

sed -i 's#</head>#<style>.facts, .cov { display: none !important }</style></head>#' report.html
mkdir -p "$(dirname "$output")"
chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
    --disable-component-update --disable-sync --hide-scrollbars --user-data-dir="$work/profile" \
    --window-size=1080,1290 --screenshot="$work/report.png" "file://$work/report.html?theme=light" 2>/dev/null
pngquant --force --output "$output" 64 "$work/report.png"
echo "$output: $(stat -c %s "$output") bytes"
