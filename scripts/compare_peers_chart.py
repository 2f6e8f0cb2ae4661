#!/usr/bin/env python3
"""Draw docs/performance.png from the results that compare_peers.py leaves in its work folder.

    python scripts/compare_peers_chart.py RESULTS.json

One panel for each phase: bars of the share of the roof that each program reaches, with the smallest and largest as a line and
the median of tokens a second above. Pale bars are of measurements that others disturbed.
"""
import json
import os
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.patches import Patch  # noqa: E402

import compare_peers_page as page  # noqa: E402

PICTURE = os.path.join(os.path.dirname(page.PAGE), "performance.png")
COLORS = {"trueup": "#1b6ca8", "llama.cpp": "#e08e2b", "candle": "#8a8a8a"}
WIDTH, PALE = 0.27, 0.3


def draw(axes, results, phase):
    configurations = page.configurations(results)
    colors = {program: color for program, color in COLORS.items() if any(rows.rates(program, phase) for _, _, rows in configurations)}
    for number, (program, color) in enumerate(colors.items()):
        for place, (_, _, rows) in enumerate(configurations):
            shares = [100 * share for share in rows.shares(program, phase)]
            if not shares:
                continue
            middle, x = statistics.median(shares), place + (number - (len(colors) - 1) / 2) * WIDTH
            reach = [[middle - min(shares)], [max(shares) - middle]]
            axes.bar(x, middle, WIDTH, color=color, yerr=reach, ecolor="#333333", capsize=2,
                     alpha=PALE if rows.disturbed else 1)
            rate = statistics.median(rows.rates(program, phase))
            axes.text(x, max(shares) + 1.5, f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}", ha="center", fontsize=8)
    axes.set_xticks(range(len(configurations)), [f"{kind}\n{threads} thread{'s' * (threads > 1)}" for kind, threads, _ in configurations])
    axes.axhline(100, color="#333333", linewidth=1)
    axes.set_ylim(0, 115)
    axes.spines[["top", "right"]].set_visible(False)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        results = json.load(file)
    shown = results["arguments"]
    figure, panels = pyplot.subplots(1, 2, figsize=(12, 4.2), sharey=True, layout="constrained")
    titles = {"decode": f"Decode, {shown['generate']} tokens", "prompt": f"Prompt, {shown['prompt']} tokens"}
    for axes, (phase, title) in zip(panels, titles.items()):
        draw(axes, results, phase)
        axes.set_title(f"{title} (above the bars: tokens/s; pale: disturbed)", fontsize=10)
    panels[0].set_ylabel("share of the roof, %")
    figure.legend(handles=[Patch(color=color, label=program) for program, color in COLORS.items()], loc="outside lower center",
                  ncols=len(COLORS), frameon=False)
    figure.suptitle(f"Llama-3.2-1B's shape on {results['machine'].split(', ')[0]}, {results['date']}", fontsize=11)
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
