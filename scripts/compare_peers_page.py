"""The part of docs/performance.md that compare_peers.py measures: tables between two marks, in Markdown."""
import os
import statistics

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "performance.md")
BEGIN, END = "<!-- compare_peers.py writes from here -->", "<!-- to here -->"
PEERS = ["llama.cpp", "candle"]
MEGABYTE = 1e6
# What is asked of the CPU device, per type: (decode and prompt, as a ratio to llama.cpp), (share of the roof in decode).
RATIOS = {"q4_0": (1.8, 2.6), "q8_0": (2.0, 4.8), "f16": (1.6, 1.3)}
DECODE_SHARES = {"q4_0": 0.88, "q8_0": 0.92, "f16": 0.88}
# The share of the processors that others may have while a pair is measured; more, and the pair says nothing.
QUIET = 0.1
DISTURBED = "disturbed"
INT8_SHARE, FIRST_SECONDS, MEMORY_BYTES, TOGETHER = 0.65, 0.5, 250 * MEGABYTE, 6


def spread(values, digits=2, scale=1):
    """Median (smallest - largest), or nothing where nothing was measured."""
    if not values:
        return ""
    low, middle, high = (f"{scale * value:.{digits}f}" for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} - {high})" if len(values) > 1 else middle


def table(head, lines):
    return "\n".join(["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *lines]]) + "\n"


def undisturbed(rows):
    """The rows that were measured while others were quiet; all, where there is none, and whether that is so."""

    def others(row):
        return max([row[program]["others"] for program in ("trueup", "llama.cpp") if program in row] + [row.get("others", 0)])

    quiet = [row for row in rows if others(row) <= QUIET]
    return quiet or rows, not quiet


class Rows:
    """The pairs of one type and number of threads."""

    def __init__(self, results, kind, threads):
        self.count = {phase: results["arguments"][{"prompt": "prompt", "decode": "generate"}[phase]] for phase in ("prompt", "decode")}
        rows = [row for row in results["rows"] if (row["type"], row["threads"]) == (kind, threads) and "trueup" in row]
        self.rows, self.disturbed = undisturbed(rows)
        self.pairs = DISTURBED if self.disturbed else f"{len(self.rows)} of {len(rows)}"

    def rates(self, program, phase):
        return [self.count[phase] / row[program][phase] for row in self.rows if program in row]

    def ratios(self, program, phase):
        return [row[program][phase] / row["trueup"][phase] for row in self.rows if program in row]

    def shares(self, program, phase):
        """Of the roof, which trueup measured a few seconds before or behind the other program."""
        return [row["trueup"][phase + "_roof"] * row["trueup"][phase] / row[program][phase] for row in self.rows if program in row]

    def of(self, program, field):
        return [row[program][field] for row in self.rows if program in row]


def configurations(results):
    shown = results["arguments"]
    return [(kind, threads, Rows(results, kind, threads)) for kind in shown["types"] for threads in shown["threads"]]


def phase_table(results, phase):
    head = ["type", "threads", "pairs", "trueup, tokens/s", "llama.cpp", "ratio", "candle", "ratio", "share of the roof: trueup", "llama.cpp"]
    lines = []
    for kind, threads, rows in configurations(results):
        line = [kind, str(threads), rows.pairs, spread(rows.rates("trueup", phase), 1)]
        for peer in PEERS:
            line += [spread(rows.rates(peer, phase), 1), spread(rows.ratios(peer, phase))]
        lines.append(line + [spread(rows.shares(program, phase), 0, 100) + " %" for program in ("trueup", "llama.cpp")])
    return table(head, lines)


def start_table(results):
    head = ["type", "threads", "first token, s: trueup", "llama.cpp", "candle", "memory, MB: trueup", "llama.cpp", "candle", "file, MB"]
    lines = []
    for kind, threads, rows in configurations(results):
        first = [spread(rows.of(program, "first")) for program in ("trueup", *PEERS)]
        memory = [spread(rows.of(program, "memory"), 0, 1 / MEGABYTE) for program in ("trueup", *PEERS)]
        lines.append([kind, str(threads), *first, *memory, f"{rows.rows[0]['file_bytes'] / MEGABYTE:.0f}"])
    return table(head, lines)


def together(results, kind):
    return undisturbed([row for row in results["rows"] if row["type"] == kind and "many" in row])


def together_table(results):
    lines = []
    for kind in results["arguments"]["types"]:
        rows, disturbed = together(results, kind)
        lines.append([kind, str(rows[0]["threads"]), DISTURBED if disturbed else str(len(rows))] + [spread([row[field] for row in rows], digits)
                                                       for field, digits in (("one", 1), ("many", 1), ("ratio", 2))])
    return table(["type", "threads", "measured", "1 sequence, tokens/s", f"{results['sequences']} sequences, all together", "ratio"], lines)


def goal(disturbed, what, limit, values, digits=2, unit="", at_most=False):
    middle = statistics.median(values)
    reached = middle <= limit if at_most else middle >= limit
    sign = "<=" if at_most else ">="
    return [what, f"{sign} {limit:.{digits}f}{unit}", spread(values, digits) + unit, DISTURBED if disturbed else "yes" if reached else "no"]


def goals_table(results):
    """The goals that this comparison can judge, by the medians."""
    threads, lines = max(results["arguments"]["threads"]), []
    percent = {"digits": 0, "unit": " %"}
    for kind, count, rows in configurations(results):
        if kind in DECODE_SHARES:
            shares = [100 * share for share in rows.shares("trueup", "decode")]
            lines.append(goal(rows.disturbed, f"decode {kind}, share of the roof, threads: {count}", 100 * DECODE_SHARES[kind], shares, **percent))
        if kind in ("q4_0", "q8_0"):
            shares = [100 * share for share in rows.of("trueup", "int8")]
            lines.append(goal(rows.disturbed, f"prompt {kind}, share of the int8 peak, threads: {count}", 100 * INT8_SHARE, shares, **percent))
        if kind in RATIOS and count == threads:
            for phase, limit in zip(("decode", "prompt"), RATIOS[kind]):
                lines.append(goal(rows.disturbed, f"{phase} {kind} against llama.cpp, threads: {count}", limit, rows.ratios("llama.cpp", phase)))
        if kind == "q4_0" and count == threads:
            lines.append(goal(rows.disturbed, "first token after start, q4_0, warm", FIRST_SECONDS, rows.of("trueup", "first"), unit=" s", at_most=True))
            over = [(row["trueup"]["memory"] - row["file_bytes"]) / MEGABYTE for row in rows.rows]
            lines.append(goal(False, "memory beyond the file, q4_0", MEMORY_BYTES / MEGABYTE, over, 0, " MB", True))
    for kind in results["arguments"]["types"]:
        rows, disturbed = together(results, kind)
        ratios = [row["ratio"] for row in rows]
        lines.append(goal(disturbed, f"{results['sequences']} sequences against one, {kind}", TOGETHER, ratios))
    return table(["goal", "asked", "measured", "reached"], lines)


def facts(results):
    measured = [row[program] for row in results["rows"] for program in ("trueup", *PEERS) if program in row]
    abouts = sorted({found["about"] for found in measured})
    system = next(row["llama.cpp"]["system"].strip(" |") for row in results["rows"] if "llama.cpp" in row)
    others = [found["others"] for found in measured]
    rule = f"Pairs during which they had more than {100 * QUIET:.0f} % do not count; where all had, they stand here as `{DISTURBED}` and judge nothing."
    shown = results["arguments"]
    command = (f"scripts/compare_peers.py TRUEUP --rounds {shown['rounds']} --threads {','.join(map(str, shown['threads']))} "
               f"--types {','.join(shown['types'])} --prompt {shown['prompt']} --generate {shown['generate']}")
    roofs = {threads: [row["trueup"] for row in results["rows"] if "trueup" in row and row["threads"] == threads]
             for threads in shown["threads"]}
    lines = [f"{results['date']}, {results['machine']}; {results['version']}; " + "; ".join(abouts) + f". llama.cpp says of itself: `{system}`.",
             "", f"    {command}", ""]
    for threads, found in roofs.items():
        reads, products = ([one[field] for one in found] for field in ("read_gb_per_s", "int8_gop_per_s"))
        lines.append(f"- Roof, threads: {threads}: reads {spread(reads, 1)} GB/s, int8 products {spread(products, 0)} GOP/s.")
    lines.append(f"- Other programs had {spread(others, 0, 100)} % of the processors while these were measured. {rule}")
    return "\n".join(lines) + "\n"


def tables(results):
    shown = results["arguments"]
    parts = [facts(results), "![Share of the roof that each program reaches](performance.png)\n",
             f"Decode, {shown['generate']} tokens one by one behind {shown['prompt']}:\n", phase_table(results, "decode"),
             f"Prompt of {shown['prompt']} tokens:\n", phase_table(results, "prompt"),
             f"From the start until the first token, and the largest resident memory with a context of {results['context']}:\n",
             start_table(results), "Many sequences at once (trueup):\n", together_table(results),
             "What issue 5 asks, judged by the medians:\n", goals_table(results)]
    return "\n".join(parts)


def insert(text):
    with open(PAGE, encoding="utf-8") as file:
        before, rest = file.read().split(BEGIN)
    after = rest.split(END)[1]
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(f"{before}{BEGIN}\n{text}{END}{after}")
