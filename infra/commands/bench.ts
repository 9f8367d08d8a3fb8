import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { coldStarts } from "../bench/cold.ts";
import { type Case, handlerRatios } from "../bench/handler.ts";
import { type Ratio, ratioOf } from "../bench/ratios.ts";
import { type Command, common, print, table } from "../command.ts";
import { Complaint } from "../complaint.ts";
import { openSigner, type Signer } from "../keys.ts";
import { readCatalogue } from "../registry.ts";

/** A measurement beside its bar, the most that it may come to; some have none and are there to compare. */
interface Result {
  what: string;
  ratio: Ratio;
  bar?: number;
  kilobytes?: { bundle: number; bar: number };
}

export default {
  summary:
    "Measures what a handler adds to a review and a bundle to a cold start, as ratios that no machine's speed changes.",
  options: {
    rounds: { type: "string", value: "N", says: "how many pairs to measure (100 of a handler, 15 of cold starts)" },
    only: { type: "string", value: "handler|cold", says: "measure nothing else" },
    output: common.output,
  },

  async run({ options }) {
    const rounds = options.number("rounds");
    const only = options.text("only");
    const json = options.text("output") === "json";
    if (rounds === 0) throw new Complaint("--rounds must be at least 1");
    if (only !== undefined && !["handler", "cold"].includes(only))
      throw new Complaint(`--only takes handler or cold, not "${only}"`);

    const folder = await mkdtemp(join(tmpdir(), "postern-bench-"));
    try {
      const signer = await openSigner(folder);
      const results: Partial<Record<"handler" | "cold", Result[]>> = {};
      if (only !== "cold") {
        results.handler = await ofHandlers(signer, rounds ?? 100);
        if (!json) print(`${intoTable("HANDLER, over a parse and a small answer", results.handler)}\n`);
      }
      if (only !== "handler") {
        results.cold = await ofColdStarts(signer, folder, rounds ?? 15);
        if (!json) print(`${intoTable("COLD START, over an empty handler", results.cold)}\n`);
      }
      print(
        json
          ? `${JSON.stringify(results, null, 2)}\n`
          : "Medians, and where eight of ten pairs lie. A busy machine widens them.\n",
      );
    } finally {
      await rm(folder, { recursive: true });
    }
  },
} satisfies Command;

const sizes = [5_000, 50_000, 1_000_000, 3_000_000];

/** A rule that patches, without and with the line in the log, and one that has nothing to say. */
const cases: Omit<Case, "bytes">[] = [
  { rule: "default-toleration-seconds", phase: "mutate", journal: false },
  { rule: "default-toleration-seconds", phase: "mutate", journal: true },
  { rule: "always-admit", phase: "validate", journal: false },
];

const handlerBar = (journal: boolean, bytes: number): number | undefined => {
  if (journal) return bytes === 5_000 ? 1.7 : undefined;
  return bytes === 5_000 ? 1.4 : 1.3;
};

const ofHandlers = async (signer: Signer, rounds: number): Promise<Result[]> => {
  const results: Result[] = [];
  for (const kind of cases)
    for (const bytes of sizes) {
      const { rule, phase, journal } = kind;
      const size = bytes < 1_000_000 ? `${bytes / 1_000} KB` : `${bytes / 1_000_000} MB`;
      const bar = handlerBar(journal, bytes);
      results.push({
        what: `${rule}/${phase}, ${size}${journal ? ", with its line in the log" : ""}`,
        ratio: ratioOf(await handlerRatios({ ...kind, bytes }, signer, rounds)),
        ...(bar && { bar }),
      });
    }
  return results;
};

const ofColdStarts = async (signer: Signer, folder: string, rounds: number): Promise<Result[]> => {
  const starts = await coldStarts(await readCatalogue(), signer, folder, rounds);
  return starts.map(({ listed: { name, rule }, bytes, ratios }) => {
    const needs = Object.keys(rule.needs ?? {}).length > 0;
    return {
      what: name,
      ratio: ratioOf(ratios),
      bar: needs ? 1.8 : 1.3,
      kilobytes: { bundle: bytes / 1024, bar: needs ? 60 : 20 },
    };
  });
};

const intoTable = (title: string, results: Result[]): string => {
  const rows = results.map(({ what, ratio, bar, kilobytes }) => [
    what,
    `${ratio.median.toFixed(2)} (${ratio.p10.toFixed(2)}–${ratio.p90.toFixed(2)})${beside(ratio.median, bar, 2)}`,
    ...(kilobytes ? [`${kilobytes.bundle.toFixed(1)} KB${beside(kilobytes.bundle, kilobytes.bar, 1)}`] : []),
  ]);
  return table([[title, "RATIO", ...(results[0]?.kilobytes ? ["BUNDLE"] : [])], ...rows]);
};

/** As exact as what is printed before it. */
const beside = (value: number, bar: number | undefined, digits: number): string => {
  if (bar === undefined) return "";
  return Number(value.toFixed(digits)) <= bar ? `, within ${bar}` : `, to reach ${bar}`;
};
