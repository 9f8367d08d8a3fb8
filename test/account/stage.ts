import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { parseDocument } from "yaml";
import { type AwsStage, createAwsStageClients } from "../../infra/aws/stage.ts";
import { Complaint } from "../../infra/cli/complaint.ts";
import type { ServerCertificate } from "../../infra/keys/keys.ts";
import { type Checkout, openCheckout, type ProgramOutput } from "../checkout.ts";
import { type ImitatedCluster, startImitatedCluster } from "./api-server.ts";
import { runStoppable } from "./program.ts";
import { createTraffic, ordinaryRule, type ReviewBudget, suiteRule, type Traffic } from "./traffic.ts";

// A stage of the suite: a copy of the checkout with two rules, an imitated cluster, and functions that run Postern's
// commands for the stage.

export interface SuiteStage {
  name: string;
  endpointType: "http" | "url";
  aws: AwsStage;
  cluster: ImitatedCluster;
  traffic: Traffic;
  folder: string;
  /** Runs a command for this stage. Returns its output, also if the command fails. */
  run(verb: string, ...words: string[]): Promise<ProgramOutput>;
  /** Runs a command for this stage. Throws if the command fails. */
  mustRun(verb: string, ...words: string[]): Promise<ProgramOutput>;
  /** Sets parameters of the stage in serverless.yml, which the next deployment reads. */
  setParams(params: Record<string, number | string>): Promise<void>;
  /** Writes a version of the suite's rule, which the next deployment publishes. */
  writeVersion(version: string): Promise<void>;
  close(): Promise<void>;
}

const ruleFolder = new URL("rule/", import.meta.url);
const config = `rules:
  ${ordinaryRule}: { failurePolicy: Ignore }
  ${suiteRule}: { failurePolicy: Ignore, timeoutSeconds: 10 }
clusters: { suite: {} }
`;
/** The commands that have the option --kubeconfig. */
const clusterVerbs = new Set(["deploy", "status", "rollback", "rotate", "destroy"]);

export const openSuiteStage = async (
  name: string,
  endpointType: "http" | "url",
  { certificate, budget, signal }: { certificate: ServerCertificate; budget: ReviewBudget; signal: AbortSignal },
): Promise<SuiteStage> => {
  const [cluster, checkout] = await Promise.all([startImitatedCluster(certificate), openCheckout([ordinaryRule])]);
  const traffic = createTraffic(cluster, budget);
  await Promise.all([
    checkout.write("kubeconfig", cluster.kubeconfig),
    checkout.write("postern.yaml", config),
    writeRule(checkout, "one"),
  ]);
  const run = async (verb: string, ...words: string[]) => {
    const program = [join(checkout.folder, "infra/main.ts"), verb, ...words, "--stage", name];
    const access = clusterVerbs.has(verb) ? ["--kubeconfig", join(checkout.folder, "kubeconfig")] : [];
    // After Ctrl-C, the stage must still be destroyed.
    if (verb === "destroy") return runStoppable([...program, ...access], checkout.folder);
    signal.throwIfAborted();
    return runStoppable([...program, ...access], checkout.folder, signal);
  };
  return {
    name,
    endpointType,
    cluster,
    traffic,
    run,
    folder: checkout.folder,
    aws: createAwsStageClients(name),
    mustRun: async (verb, ...words) => {
      const output = await run(verb, ...words);
      signal.throwIfAborted();
      if (output.code !== 0)
        throw new Complaint(
          `postern ${verb} --stage ${name} ends with ${output.code}: ${output.stderr.trim() || output.stdout.trim()}`,
          1,
        );
      return output;
    },
    setParams: async (params) => {
      const document = parseDocument(await readFile(join(checkout.folder, "serverless.yml"), "utf8"));
      for (const [param, value] of Object.entries(params)) document.setIn(["params", name, param], value);
      await checkout.write("serverless.yml", String(document));
    },
    writeVersion: (version) => writeRule(checkout, version),
    close: async () => {
      traffic.close();
      await Promise.all([cluster.stop(), checkout.remove()]);
    },
  };
};

/** Writes the suite's rule with a version, such as "one", which its answers state. */
const writeRule = async (checkout: Checkout, version: string) => {
  const [rule, cases] = await Promise.all(
    ["rule.ts", "cases.yaml"].map((file) => readFile(new URL(file, ruleFolder), "utf8")),
  );
  await checkout.rule(
    suiteRule,
    String(rule).replace('version: string = "one"', `version: string = "${version}"`),
    String(cases).replace("version: one", `version: ${version}`),
  );
};
