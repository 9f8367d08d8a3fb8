import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asksCluster } from "#lib/needs.ts";
import type { CheckedMany } from "../bench/checked.ts";
import { coldStarts } from "../bench/cold.ts";
import type { Comparison, Measured } from "../bench/creates.ts";
import { type Case, handlerRatios } from "../bench/handler.ts";
import { type Ratio, ratioOf } from "../bench/ratios.ts";
import type { Reads } from "../bench/reads.ts";
import { readCatalogue } from "../catalogue/registry.ts";
import { type Command, common, print, table } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { openSigner, type Signer } from "../keys/keys.ts";

/** What was measured; nothing where it was not to be, or could not. */
interface Results {
  handler?: Result[];
  cold?: Result[];
  policies?: Result[];
  check?: CheckedMany;
  reads?: Reads;
  added?: Creates;
  chains?: Creates;
  leftOut: string[];
}

interface Creates {
  measured: Measured[];
  comparisons: Comparison[];
}

/** A measurement beside its bar, the most that it may come to; some have none and are there to compare. */
interface Result {
  what: string;
  ratio: Ratio;
  bar?: number;
  kilobytes?: { bundle: number; bar: number };
}

type Section = "handler" | "cold" | "policies" | "check" | "reads" | "added" | "chains";

/** How many rounds there are where nobody says. */
const usual: Record<Section, number> = {
  ...{ handler: 100, cold: 15, policies: 20, check: 5 },
  ...{ reads: 100, added: 1500, chains: 300 },
};
const sections = Object.keys(usual) as Section[];
const withServer: readonly string[] = ["reads", "added", "chains"] satisfies Section[];

export default {
  summary:
    "Measures what a handler adds to a review, a bundle to a cold start, a webhook to a create, and a check to the reading of manifests, as ratios that no machine's speed changes.",
  options: {
    rounds: {
      type: "string",
      value: "N",
      says: `how many rounds to measure (${sections.map((name) => `${name} ${usual[name]}`).join(", ")})`,
    },
    only: { type: "string", value: sections.join("|"), says: "measure nothing else" },
    output: common.output,
  },

  async run({ options }) {
    const rounds = options.number("rounds");
    const only = options.text("only");
    const json = options.text("output") === "json";
    if (rounds === 0) throw new Complaint("--rounds must be at least 1");
    if (only !== undefined && !sections.some((name) => name === only))
      throw new Complaint(`--only takes ${sections.join(", ")}, not "${only}"`);
    const chosen = sections.filter((name) => only === undefined || only === name);

    // Loaded here, for the overview of verbs does without what tests are made of.
    const { requireBinaries } = await import("../parity/control-plane/binaries.ts");
    const { findGoWebhook } = await import("../bench/controller-runtime.ts");
    const { findKinitiras } = await import("../bench/kinitiras.ts");
    const { addedLatency } = await import("../bench/added.ts");
    const { chainLatency } = await import("../bench/chains.ts");
    const { checkRatios } = await import("../bench/checked.ts");
    const { policyRatios } = await import("../bench/policies.ts");
    const { readLatency } = await import("../bench/reads.ts");
    const goWebhook = await findGoWebhook();
    const binaries = await requireBinaries().catch((error: Error) => {
      if (withServer.includes(only ?? "")) throw error;
      return error;
    });

    const folder = await mkdtemp(join(tmpdir(), "postern-bench-"));
    const results: Results = { leftOut: [] };
    const say = (text: string) => void (json || print(`${text}\n`));
    const leaveOut = (sentence: string) => {
      results.leftOut.push(sentence);
      say(`${sentence}\n`);
    };
    try {
      const signer = await openSigner(folder);
      for (const name of chosen) {
        const times = rounds ?? usual[name];
        if (name === "handler") {
          results.handler = await ofHandlers(signer, times);
          say(intoTable("HANDLER, over a parse and a small answer", results.handler));
        } else if (name === "cold") {
          leaveOut("cold starts are without rules that keep a ledger or ask only outside the cluster: nobody is there");
          results.cold = await ofColdStarts(signer, folder, times);
          say(intoTable("COLD START, over an empty handler", results.cold));
        } else if (name === "policies") {
          const program = await findKinitiras();
          if (!program)
            leaveOut("kinitiras is left out, for its engine is not here: node infra/bench/kinitiras.ts builds it");
          results.policies = await policyRatios(signer, folder, program, times);
          say(intoTable("POLICIES", results.policies));
        } else if (name === "check") {
          results.check = await checkRatios(folder, times);
          say(ofCheck(results.check));
        } else if (binaries instanceof Error) {
          leaveOut(`${name} is left out, for ${binaries.message}`);
        } else if (name === "reads") {
          results.reads = await readLatency(binaries, times);
          say(ofReads(`A REVIEW THAT READS, Kubernetes ${binaries.version}`, results.reads));
        } else if (name === "added") {
          if (!goWebhook)
            leaveOut("controller-runtime is left out, for its webhook is not here: npm run cluster builds it");
          results.added = await addedLatency(binaries, goWebhook, folder, times);
          say(ofCreates(`ONE CALL, Kubernetes ${binaries.version}`, results.added));
        } else {
          results.chains = await chainLatency(binaries, folder, times);
          say(ofCreates(`MUTATORS, Kubernetes ${binaries.version}`, results.chains));
        }
      }
      print(json ? `${JSON.stringify(results, null, 2)}\n` : `${legend(results)}\n`);
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
  const starting = (await readCatalogue()).filter(({ rule }) => {
    const verbs = Object.values(rule.needs ?? {}).map(({ verb }) => verb);
    return verbs.length === 0 || (asksCluster(rule) && !verbs.includes("ledger"));
  });
  const runsScripts = new Set(
    starting.flatMap(({ name, rule }) =>
      Object.values(rule.needs ?? {}).some(({ verb }) => verb === "cue") ? name : [],
    ),
  );
  const starts = await coldStarts(starting, signer, folder, rounds);
  return starts.map(({ name, bytes, asks, ratios }) => {
    const ratio = ratioOf(ratios);
    if (name === undefined) return { what: "one read by hand", ratio };
    const [bar, most] = asks ? [1.8, runsScripts.has(name) ? 95 : 60] : [1.3, 20];
    return {
      what: asks ? `${name}, asking` : name,
      ratio,
      bar,
      kilobytes: { bundle: bytes / 1024, bar: most },
    };
  });
};

const intoTable = (title: string, results: Result[]): string => {
  const rows = results.map(({ what, ratio, bar, kilobytes }) => [
    what,
    spread(ratio, bar),
    ...(kilobytes ? [`${kilobytes.bundle.toFixed(1)} KB${beside(kilobytes.bundle, kilobytes.bar, 1)}`] : []),
  ]);
  return table([[title, "RATIO", ...(results.some(({ kilobytes }) => kilobytes) ? ["BUNDLE"] : [])], ...rows]);
};

const spread = ({ median, p10, p90 }: Ratio, bar: number | undefined) =>
  `${median.toFixed(2)} (${p10.toFixed(2)}–${p90.toFixed(2)})${beside(median, bar, 2)}`;

/** What a create takes and webhooks add to it, and below how they compare. */
const ofCreates = (title: string, { measured, comparisons }: Creates): string => {
  const chain = measured.some(({ mutators }) => mutators !== undefined);
  const rows = measured.map(({ what, create, added, mutators, cpu }) => [
    what,
    ...[create.p50, create.p99, added?.p50, added?.p99].map(inMilliseconds),
    inMilliseconds(chain ? added && mutators && added.p50 / mutators : cpu),
  ]);
  const heads = ["CREATE P50", "P99", "ADDED P50", "P99", chain ? "FOR EACH" : "CPU"];
  const ratios = comparisons.map(({ what, added, cpu, bar }) => [
    what,
    spread(added, bar),
    ...(chain ? [] : [cpu?.toFixed(2)]),
  ]);
  return `${table([[title, ...heads], ...rows])}\n${table([["COMPARED", "ADDED", ...(chain ? [] : ["CPU"])], ...ratios])}`;
};

const ofReads = (title: string, { warm, sideBySide, read, first }: Reads): string =>
  table([
    [title, "RATIO"],
    ["three reads, remembered, over none", spread(warm, 1.5)],
    [`three reads side by side, over one (${read.toFixed(2)} ms)`, spread(sideBySide, undefined)],
    ["the first read of an environment, over a later one", (first / read).toFixed(2)],
  ]);

const ofCheck = ({ manifests, bytes, seconds, memory, overParser, overReader }: CheckedMany): string => {
  const inMegabytes = (amount: number) => `${(amount / 1e6).toFixed(1)} MB`;
  const { check, reading, ownReading, rules } = seconds;
  return table([
    [`CHECK, ${manifests} manifests of ${inMegabytes(bytes)}`, "RATIO"],
    ["the whole, over a parser's reading and the rules' own time", spread(overParser, 1.5)],
    ["the whole, over its own reading and the rules' own time", spread(overReader, undefined)],
    ["CPU: the whole", `${check.toFixed(2)} s`],
    [
      "CPU: a parser's reading, its own, the rules",
      [reading, ownReading, rules].map((one) => `${one.toFixed(2)} s`).join(", "),
    ],
    ["memory at most", inMegabytes(memory)],
  ]);
};

const inMilliseconds = (value: number | undefined) => (value === undefined ? "" : `${value.toFixed(2)} ms`);

const legend = ({ added, chains }: Results) =>
  [
    "Ratios are medians, and where eight of ten lie. A busy machine widens them.",
    ...(added || chains
      ? [
          "A create is of a pod of 5 KB, a dry run, one at a time. Added is the difference to the create without a webhook in",
          "the same round; the bars are for its median. CPU is the webhook's own, for a review, and has no bar.",
        ]
      : []),
  ].join("\n");

/** As exact as what is printed before it. */
const beside = (value: number, bar: number | undefined, digits: number): string => {
  if (bar === undefined) return "";
  return Number(value.toFixed(digits)) <= bar ? `, within ${bar}` : `, to reach ${bar}`;
};
