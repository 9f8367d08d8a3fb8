import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { type Command, commonCommandOptions, writeOutput } from "../../infra/cli/command.ts";
import { Complaint } from "../../infra/cli/complaint.ts";
import { readListOption } from "../../infra/cli/options.ts";
import { readOrCreateUrlSigner, type WebhookUrlSigner } from "../../infra/keys/keys.ts";
import { runScript } from "../../infra/main.ts";
import type { ControlPlaneBinaries } from "../control-plane/binaries.ts";
import {
  describeBenchResults,
  describeLatency,
  explainBenchTables,
  formatCheckMeasurement,
  formatFleetMeasurement,
  formatLedgerMeasurement,
  formatQuotaMeasurement,
  formatReadMeasurement,
  formatTraceMeasurement,
  formatValidatorMeasurement,
} from "./bench-report.ts";

interface Context {
  rounds: number;
  signer: WebhookUrlSigner;
  /** A temporary folder. */
  folder: string;
  requireBinaries(): Promise<ControlPlaneBinaries>;
  /** Reports, in a sentence, which measurement is left out and why. */
  leaveOut(sentence: string): void;
}

interface Section {
  /** The default number of rounds in which this section of the benchmark is measured. */
  rounds: number;
  measure(context: Context): Promise<Measurement>;
  needsServer?: true;
  /** True if it is measured only with --only, because it takes many minutes. */
  isLong?: true;
}

interface Measurement {
  results: object;
  text: string;
}

/** Reports whether cold starts can be measured. Also says which measurements are left out or differ from Lambda. */
const canMeasureStarts = async (leaveOut: Context["leaveOut"]): Promise<boolean> => {
  const { findMissingRuntimeClient } = await import("../aws/tools.ts");
  const { createCpuShare } = await import("./cpu-share.ts");
  const missing = findMissingRuntimeClient();
  if (missing) leaveOut(`cold starts are left out, for ${missing}`);
  using trialShare = createCpuShare(/* megabytes */ 256);
  if (!trialShare) leaveOut("a started function has a whole core, because no control group can be made here");
  return missing === undefined;
};

// A section loads its modules only when it runs, because the list of commands also loads this file.
const sections: Record<string, Section> = {
  handler: {
    rounds: 100,
    async measure({ signer, rounds }) {
      const { measureHandlers } = await import("./handlers.ts");
      const results = await measureHandlers(signer, rounds);
      return { results, text: describeBenchResults("HANDLER, over a parse and a small answer", results) };
    },
  },
  cold: {
    rounds: 15,
    async measure({ signer, folder, rounds, leaveOut }) {
      if (!(await canMeasureStarts(leaveOut))) return { results: [], text: "" };
      const { measureColdStarts, measureLedgerStarts } = await import("./cold-starts.ts");
      const { findDynamoDb } = await import("../aws/tools.ts");
      leaveOut(
        "cold starts leave out rules that keep a ledger and ask a cluster, and rules that ask only services outside the cluster, which don't exist here",
      );
      const dynamoDb = findDynamoDb();
      if ("missing" in dynamoDb) leaveOut(`cold starts with the ledger are left out, for ${dynamoDb.missing}`);
      const results = [
        ...(await measureColdStarts(await readCatalogue(), signer, folder, rounds)),
        ...("missing" in dynamoDb ? [] : [await measureLedgerStarts(signer, folder, rounds)]),
      ];
      return { results, text: describeBenchResults("COLD START, over an empty handler", results) };
    },
  },
  policies: {
    rounds: 20,
    async measure({ signer, folder, rounds, leaveOut }) {
      const { findBuiltKinitirasEngine: findKinitiras } = await import("./peers/kinitiras.ts");
      const { benchKinitirasPolicies: measurePolicies, measureScriptColdStart } = await import("./policies.ts");
      const engine = await findKinitiras();
      if (!engine)
        leaveOut("kinitiras is left out, because its engine is not here: node test/bench/peers/kinitiras.ts builds it");
      const results = [
        ...(await measurePolicies(engine?.program, rounds)),
        ...((await canMeasureStarts(leaveOut)) ? [await measureScriptColdStart(signer, folder, rounds)] : []),
      ];
      return { results, text: describeBenchResults("POLICIES", results) };
    },
  },
  cel: {
    rounds: 20,
    async measure({ signer, folder, rounds, leaveOut }) {
      const { findCelEvaluator } = await import("./peers/cel-go.ts");
      const { compareWithCelGo, measureCelColdStarts } = await import("./cel.ts");
      const evaluator = await findCelEvaluator();
      if (!evaluator) leaveOut("cel-go is left out, because its program is not here: npm run cluster builds it");
      const results = [
        ...(evaluator ? await compareWithCelGo(evaluator.program, rounds) : []),
        ...((await canMeasureStarts(leaveOut)) ? await measureCelColdStarts(signer, folder, rounds) : []),
      ];
      return { results, text: describeBenchResults("CEL", results) };
    },
  },
  check: {
    rounds: 5,
    async measure({ folder, rounds, requireBinaries, leaveOut }) {
      const { findValidators } = await import("./peers/validators.ts");
      const { compareValidators } = await import("./validators.ts");
      const { measureCheck } = await import("./checks.ts");
      const check = await measureCheck(folder, rounds);
      const binaries = await requireBinaries().catch((error: Error) => {
        leaveOut(`what check finds is left out, for ${error.message}`);
      });
      if (!binaries) return { results: { check }, text: formatCheckMeasurement(check) };
      const tools = await findValidators();
      if (!tools)
        leaveOut(
          "kubectl-validate and kubeconform are left out, because they are not here: node infra/node.js test/bench/peers/validators.ts builds them",
        );
      const seed = Number(process.env.POSTERN_SEED ?? Math.floor(Math.random() * 1e9));
      const findings = await compareValidators(binaries, tools, folder, { files: 3000, seed });
      const text = `${formatCheckMeasurement(check)}\n${formatValidatorMeasurement(findings)}`;
      return { results: { check, findings }, text };
    },
  },
  fleet: {
    rounds: 1,
    isLong: true,
    async measure({ folder, leaveOut }) {
      const { measureFleet } = await import("./fleet.ts");
      const results = await measureFleet(folder, [10, 50, 200]);
      if (!("missing" in results)) return { results, text: formatFleetMeasurement(results) };
      leaveOut(`fleet is left out, for ${results.missing}`);
      return { results: {}, text: "" };
    },
  },
  ledger: {
    rounds: 5,
    async measure({ rounds, leaveOut }) {
      const { measureLedger } = await import("./ledger.ts");
      const results = await measureLedger(rounds);
      if (!("missing" in results)) return { results, text: formatLedgerMeasurement(results) };
      leaveOut(`ledger is left out, for ${results.missing}`);
      return { results: {}, text: "" };
    },
  },
  quotas: {
    rounds: 8,
    isLong: true,
    async measure({ rounds, leaveOut }) {
      const { measureQuotas } = await import("./quotas.ts");
      const results = await measureQuotas(rounds);
      if (!("missing" in results)) return { results, text: formatQuotaMeasurement(results) };
      leaveOut(`quotas is left out, for ${results.missing}`);
      return { results: {}, text: "" };
    },
  },
  reads: {
    rounds: 100,
    needsServer: true,
    async measure({ rounds, requireBinaries }) {
      const { measureReviewsWithReads: measureReads } = await import("./reads.ts");
      const binaries = await requireBinaries();
      const results = await measureReads(binaries, rounds);
      return { results, text: formatReadMeasurement(`A REVIEW THAT READS, Kubernetes ${binaries.version}`, results) };
    },
  },
  added: {
    rounds: 1500,
    needsServer: true,
    async measure({ folder, rounds, requireBinaries, leaveOut }) {
      const { findBenchControllerRuntimeWebhook: findGoWebhook } = await import("./peers/controller-runtime.ts");
      const { compareWebhookCallTimes: measureOneCall } = await import("./one-call.ts");
      const binaries = await requireBinaries();
      const goWebhook = await findGoWebhook();
      if (!goWebhook)
        leaveOut("controller-runtime is left out, because its webhook is not here: npm run cluster builds it");
      const results = await measureOneCall(binaries, goWebhook, folder, rounds);
      return { results, text: describeLatency(`ONE CALL, Kubernetes ${binaries.version}`, results) };
    },
  },
  chains: {
    rounds: 300,
    needsServer: true,
    async measure({ folder, rounds, requireBinaries }) {
      const { measureMutatorChains: measureChains } = await import("./chains.ts");
      const binaries = await requireBinaries();
      const results = await measureChains(binaries, folder, rounds);
      return { results, text: describeLatency(`MUTATORS, Kubernetes ${binaries.version}`, results) };
    },
  },
  trace: {
    rounds: 10,
    needsServer: true,
    async measure({ folder, rounds, requireBinaries, leaveOut }) {
      const { findBenchControllerRuntimeWebhook: findGoWebhook } = await import("./peers/controller-runtime.ts");
      const { measureTrace } = await import("./trace.ts");
      const goWebhook = await findGoWebhook();
      if (!goWebhook)
        leaveOut("controller-runtime is left out, because its webhook is not here: npm run cluster builds it");
      const results = await measureTrace(await requireBinaries(), goWebhook, folder, rounds);
      return { results, text: formatTraceMeasurement(results) };
    },
  },
};
const names = Object.keys(sections);

const command = {
  summary:
    "Measures the time that handlers, cold starts, webhooks and checks add. The results are ratios, so they don't depend on the machine.",
  options: {
    rounds: {
      type: "string",
      value: "N",
      says: `how many rounds to measure (${names.map((name) => `${name} ${sections[name]?.rounds}`).join(", ")})`,
    },
    only: { type: "string", multiple: true, value: names.join("|"), says: "measure only these" },
    output: commonCommandOptions.output,
  },

  async run({ options }) {
    const rounds = options.number("rounds");
    const only = readListOption(options, "only");
    const isJson = options.text("output") === "json";
    if (rounds === 0) throw new Complaint("--rounds must be at least 1");
    const unknownName = only.find((name) => !names.includes(name));
    if (unknownName !== undefined) throw new Complaint(`--only takes ${names.join(", ")}, not "${unknownName}"`);

    const { requireBinaries } = await import("../control-plane/binaries.ts");
    const missing = await requireBinaries().then(
      () => undefined,
      (error: Error) => error,
    );
    if (missing && only.some((name) => sections[name]?.needsServer)) throw missing;
    await using temporary = await mkdtempDisposable(join(tmpdir(), "postern-bench-"));
    const folder = temporary.path;
    const signer = await readOrCreateUrlSigner(folder);
    const results: Record<string, object> = {};
    const leftOut: string[] = [];
    const printText = (text: string) => void (isJson || writeOutput(`${text}\n`));
    const leaveOut = (sentence: string) => {
      leftOut.push(sentence);
      printText(`${sentence}\n`);
    };
    for (const [name, section] of Object.entries(sections)) {
      if (only.length > 0 && !only.includes(name)) continue;
      if (section.needsServer && missing) {
        leaveOut(`${name} is left out, for ${missing.message}`);
        continue;
      }
      if (section.isLong && only.length === 0) {
        leaveOut(`${name} is left out, because it takes many minutes; --only ${name} measures it`);
        continue;
      }
      const context = { rounds: rounds ?? section.rounds, signer, folder, requireBinaries, leaveOut };
      const measurement = await section.measure(context);
      results[name] = measurement.results;
      printText(measurement.text);
    }
    const hasCreates = results.added !== undefined || results.chains !== undefined;
    writeOutput(
      isJson ? `${JSON.stringify({ leftOut, ...results }, null, 2)}\n` : `${explainBenchTables(hasCreates)}\n`,
    );
  },
} satisfies Command;

await runScript("npm run bench --", command);
