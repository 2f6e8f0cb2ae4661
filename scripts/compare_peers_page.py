"""The part of docs/performance.md that compare_peers.py measures: tables between two marks, in Markdown."""
import os
import statistics

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "performance.md")
BEGIN, END = "<!-- compare_peers.py writes from here -->", "<!-- to here -->"
# Peers of results that do not name theirs.
PEERS = ["llama.cpp", "candle"]
MEGABYTE = 1e6
# Largest share of the processors that other programs may use while a pair is measured.
QUIET = 0.1
DISTURBED = "disturbed"


def spread(values, digits=2, scale=1, unit=""):
    """Median (smallest - largest), or an empty text without values."""
    if not values:
        return ""
    low, middle, high = (f"{scale * value:.{digits}f}{unit}" for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} - {high})" if len(values) > 1 else middle


def table(head, lines):
    return "\n".join(["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *lines]]) + "\n"


def undisturbed(rows):
    """The rows measured while other programs were quiet, and False; if there are none, all rows, and True."""

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
        """Shares of the hardware limit that trueup measured in the same pair."""
        return [row["trueup"][phase + "_roof"] * row["trueup"][phase] / row[program][phase] for row in self.rows if program in row]

    def of(self, program, field):
        return [row[program][field] for row in self.rows if program in row and field in row[program]]


def peers(results):
    return results.get("peers", PEERS)


def configurations(results):
    shown = results["arguments"]
    return [(kind, threads, Rows(results, kind, threads)) for kind in shown["types"] for threads in shown["threads"]]


def phase_table(results, phase):
    columns = [column for peer in peers(results) for column in (peer, "ratio")]
    head = ["type", "threads", "pairs", "trueup, tokens/s", *columns, "share of the limit: trueup", "llama.cpp"]
    lines = []
    for kind, threads, rows in configurations(results):
        line = [kind, str(threads), rows.pairs, spread(rows.rates("trueup", phase), 1)]
        for peer in peers(results):
            line += [spread(rows.rates(peer, phase), 1), spread(rows.ratios(peer, phase))]
        lines.append(line + [spread(rows.shares(program, phase), 0, 100, "%") for program in ("trueup", "llama.cpp")])
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
    return table(["type", "threads", "measured", "1 sequence, tokens/s", f"{results['sequences']} sequences, tokens/s", "ratio"], lines)


def facts(results):
    measured = [row[program] for row in results["rows"] for program in ("trueup", *peers(results)) if program in row]
    abouts = sorted({found["about"] for found in measured})
    system = next(row["llama.cpp"]["system"].strip(" |") for row in results["rows"] if "llama.cpp" in row)
    others = [found["others"] for found in measured]
    rule = (f"Pairs with more than {100 * QUIET:.0f}% are left out; if there are no others, the row is marked `{DISTURBED}`.")
    shown = results["arguments"]
    command = (f"scripts/compare_peers.py TRUEUP --rounds {shown['rounds']} --threads {','.join(map(str, shown['threads']))} "
               f"--types {','.join(shown['types'])} --prompt {shown['prompt']} --generate {shown['generate']}")
    roofs = {threads: [row["trueup"] for row in results["rows"] if "trueup" in row and row["threads"] == threads]
             for threads in shown["threads"]}
    lines = [f"- {results['date']}, {results['machine']}", f"- {results['version']}; " + "; ".join(abouts),
             f"- llama.cpp: `{system}`"]
    for threads, found in roofs.items():
        reads, products = ([one[field] for one in found] for field in ("read_gb_per_s", "int8_gop_per_s"))
        lines.append(f"- Hardware limit with {threads} thread{'s' * (threads > 1)}: memory {spread(reads, 1)} GB/s, "
                     f"int8 products {spread(products, 0)} GOP/s.")
    lines.append(f"- Other programs used {spread(others, 0, 100, "%")} of the processors. {rule}")
    lines += ["", "```sh", command, "```"]
    return "\n".join(lines) + "\n"


def tables(results):
    shown = results["arguments"]
    parts = [facts(results), "![Share of the hardware limit that each program reaches](performance.png)\n",
             f"### Decode\n\n{shown['generate']} tokens, one by one, after a prompt of {shown['prompt']} tokens:\n",
             phase_table(results, "decode"), f"### Prompt of {shown['prompt']} tokens\n", phase_table(results, "prompt"),
             "### First token and memory\n\nTime from the start until the first token, and largest resident memory with a context of "
             f"{results['context']}:\n", start_table(results),
             f"### {results['sequences']} sequences at once\n", together_table(results)]
    return "\n".join(parts)


def insert(text):
    with open(PAGE, encoding="utf-8") as file:
        before, rest = file.read().split(BEGIN)
    after = rest.split(END)[1]
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(f"{before}{BEGIN}\n{text}{END}{after}")
