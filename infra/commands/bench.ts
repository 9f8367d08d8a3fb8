import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describeCheck, describeLatency, describeReads, describeResults, describeUnits } from "../bench/report.ts";
import { readCatalogue } from "../catalogue/registry.ts";
import { type Command, common, print } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { openSigner } from "../keys/keys.ts";

/** The default number of rounds. */
const usual = { handler: 100, cold: 15, policies: 20, check: 5, reads: 100, added: 1500, chains: 300 };
type Section = keyof typeof usual;
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

    // Loaded here, as the overview of verbs loads this file and needs none of these test modules.
    const { requireBinaries } = await import("../parity/control-plane/binaries.ts");
    const { findGoWebhook } = await import("../bench/controller-runtime.ts");
    const { findKinitiras } = await import("../bench/kinitiras.ts");
    const goWebhook = await findGoWebhook();
    const binaries = await requireBinaries().catch((error: Error) => {
      if (withServer.includes(only ?? "")) throw error;
      return error;
    });

    await using temporary = await mkdtempDisposable(join(tmpdir(), "postern-bench-"));
    const folder = temporary.path;
    const signer = await openSigner(folder);
    const results: Partial<Record<Section, object>> = {};
    const leftOut: string[] = [];
    const say = (text: string) => void (json || print(`${text}\n`));
    const leaveOut = (sentence: string) => {
      leftOut.push(sentence);
      say(`${sentence}\n`);
    };
    const measure = async <T extends object>(name: Section, measured: Promise<T>, describe: (result: T) => string) => {
      const result = await measured;
      results[name] = result;
      say(describe(result));
    };
    for (const name of sections.filter((name) => only === undefined || only === name)) {
      const times = rounds ?? usual[name];
      if (name === "handler") {
        const { measureHandlers } = await import("../bench/handlers.ts");
        const title = "HANDLER, over a parse and a small answer";
        await measure(name, measureHandlers(signer, times), (results) => describeResults(title, results));
      } else if (name === "cold") {
        const { measureColdStarts } = await import("../bench/cold-starts.ts");
        leaveOut("cold starts are without rules that keep a ledger or ask only outside the cluster: nobody is there");
        const measured = measureColdStarts(await readCatalogue(), signer, folder, times);
        await measure(name, measured, (results) => describeResults("COLD START, over an empty handler", results));
      } else if (name === "policies") {
        const { measurePolicies } = await import("../bench/policies.ts");
        const program = await findKinitiras();
        if (!program)
          leaveOut("kinitiras is left out, for its engine is not here: node infra/bench/kinitiras.ts builds it");
        const measured = measurePolicies(signer, folder, program, times);
        await measure(name, measured, (results) => describeResults("POLICIES", results));
      } else if (name === "check") {
        const { measureCheck } = await import("../bench/checks.ts");
        await measure(name, measureCheck(folder, times), describeCheck);
      } else if (binaries instanceof Error) {
        leaveOut(`${name} is left out, for ${binaries.message}`);
      } else if (name === "reads") {
        const { measureReads } = await import("../bench/reads.ts");
        const title = `A REVIEW THAT READS, Kubernetes ${binaries.version}`;
        await measure(name, measureReads(binaries, times), (reads) => describeReads(title, reads));
      } else if (name === "added") {
        const { measureOneCall } = await import("../bench/one-call.ts");
        if (!goWebhook)
          leaveOut("controller-runtime is left out, for its webhook is not here: npm run cluster builds it");
        const title = `ONE CALL, Kubernetes ${binaries.version}`;
        const measured = measureOneCall(binaries, goWebhook, folder, times);
        await measure(name, measured, (latency) => describeLatency(title, latency));
      } else {
        const { measureChains } = await import("../bench/chains.ts");
        const title = `MUTATORS, Kubernetes ${binaries.version}`;
        await measure(name, measureChains(binaries, folder, times), (latency) => describeLatency(title, latency));
      }
    }
    const hasCreates = results.added !== undefined || results.chains !== undefined;
    print(json ? `${JSON.stringify({ leftOut, ...results }, null, 2)}\n` : `${describeUnits(hasCreates)}\n`);
  },
} satisfies Command;
