import { existsSync } from "node:fs";
import { cp, mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type CatalogueRule, hasNeed, readCatalogue } from "../../infra/catalogue/registry.ts";
import { Complaint } from "../../infra/cli/complaint.ts";
import { parseConfig } from "../../infra/project/project.ts";
import type { ProcessUsage } from "./processes/meter.ts";
import { runNodeAndParseOutput, startChild } from "./processes/processes.ts";

/** The cost of one command of `postern` for a stage with a number of clusters. */
export interface FleetStep {
  clusters: number;
  step: string;
  /** Seconds from start to end. */
  wall: number;
  usage: ProcessUsage;
}

/** The cost of `postern deploy` for stages with several numbers of clusters. */
export interface FleetMeasurement {
  rules: number;
  steps: FleetStep[];
  /**
   * For each number of clusters, the size of the largest release: the file in which a deployment records the Lambda
   * versions of all rules and the webhook entries of all clusters.
   */
  releases: { clusters: number; bytes: number }[];
}

/** What the process that runs the stand-ins for AWS and for clusters prints first: how to reach them. */
interface FleetHost {
  /** What this machine lacks to run the process, if anything. Then there are no other fields. */
  missing?: string;
  env: Record<string, string>;
  gatewayCa: string;
  clusterCa: string;
  apiServerUrl: string;
}

const root = fileURLToPath(new URL("../../", import.meta.url));
/** The program with the stand-ins for AWS and for clusters. It runs in a process of its own. */
const hostProgram = join(root, "test/aws/fleet-process.ts");
/**
 * A write waits 4 s for each of 4 mutating rules and 4 s for all validating ones: 20 s, the most that Postern deploys.
 */
const [maxMutators, timeoutSeconds] = [4, 4];
/** The number of clusters that are deployed at the same time. */
const waveSize = 10;

/**
 * Measures `postern deploy` for stages with these numbers of clusters, against stand-ins on this machine. Returns the
 * reason instead if the stand-ins can't run here.
 */
export const measureFleet = async (
  folder: string,
  sizes: readonly number[],
  wantedRules = 60,
): Promise<FleetMeasurement | { missing: string }> => {
  if (!existsSync(hostProgram)) return { missing: "the stand-ins of test/aws are not part of this checkout" };
  await using child = startChild(process.execPath, hostProgram);
  const host = (await child.next()) as FleetHost;
  if (host.missing !== undefined) return { missing: host.missing };
  const checkout = join(folder, "fleet");
  const rules = await writeCheckout(checkout, host, wantedRules);
  const steps: FleetStep[] = [];
  const releases: FleetMeasurement["releases"] = [];
  for (const clusters of sizes) {
    const stage = `fleet-${clusters}`;
    const measure = async (step: string, count: number, ...words: string[]) => {
      await writeFleetConfig(checkout, rules, { stage, count }, host);
      const start = performance.now();
      const usage = await runPostern(checkout, host, "deploy", "--stage", stage, "--wave", String(waveSize), ...words);
      steps.push({ clusters, step, wall: (performance.now() - start) / 1000, usage });
    };
    await measure("a plan of a new stage", clusters, "--plan-only");
    await measure("the first deployment", clusters);
    await measure("a plan without changes", clusters, "--plan-only");
    await measure("a deployment that adds a cluster", clusters + 1);
    // The process answers the name of a stage with the bytes of each of the stage's stored releases.
    const releaseBytes = (await child.ask(stage)) as number[];
    releases.push({ clusters, bytes: Math.max(...releaseBytes) });
  }
  return { rules: rules.length, steps, releases };
};

const runPostern = async (checkout: string, { env }: FleetHost, ...words: string[]): Promise<ProcessUsage> => {
  const options = ["--import", new URL("processes/meter.ts", import.meta.url).href];
  const args = [...words, "--kubeconfig", join(checkout, "kubeconfig"), "--ca", join(checkout, "gateway.crt")];
  const program = join(checkout, "infra/main.ts");
  return (await runNodeAndParseOutput(program, { options, args, env, worstExitCode: 0 })) as ProcessUsage;
};

/**
 * Writes a checkout with `wantedRules` rules: those of the catalogue that need no settings, but only the first
 * `maxMutators` of them that mutate, and generated rules.
 */
const writeCheckout = async (checkout: string, host: FleetHost, wantedRules: number): Promise<string[]> => {
  const copied = ["infra", "lib", "serverless.yml", "package.json"];
  const usable = (await readCatalogue()).filter(isUsable);
  const mutators = usable.filter(({ phases }) => phases.includes("mutate"));
  const excessMutators = mutators.slice(maxMutators);
  const chosen = usable.filter((listed) => !excessMutators.includes(listed)).slice(0, wantedRules);
  const folders = chosen.map(({ name }) => `functions/${name}`);
  for (const path of [...copied, ...folders]) await cp(join(root, path), join(checkout, path), { recursive: true });
  await symlink(join(root, "node_modules"), join(checkout, "node_modules"));
  const generated = Array.from(
    { length: Math.max(0, wantedRules - chosen.length) },
    (_, index) => `deny-nothing-${index}`,
  );
  for (const name of generated) {
    await mkdir(join(checkout, "functions", name), { recursive: true });
    const files = { "rule.ts": generatedRule, "cases.yaml": generatedCase, "README.md": `# ${name}\n` };
    for (const [file, text] of Object.entries(files)) await writeFile(join(checkout, "functions", name, file), text);
  }
  await writeFile(join(checkout, "gateway.crt"), host.gatewayCa);
  await writeFile(join(checkout, "cluster.crt"), host.clusterCa);
  return [...chosen.map(({ name }) => name), ...generated];
};

/** Reports whether a stage can have the rule without settings. Rules with a ledger aren't measured. */
const isUsable = (listed: CatalogueRule): boolean => {
  if (hasNeed(listed, "ledger")) return false;
  try {
    parseConfig(`rules: { ${formatRule(listed.name)} }`, [listed]);
    return true;
  } catch (error) {
    if (error instanceof Complaint) return false;
    throw error;
  }
};

const formatRule = (name: string) =>
  `${name}: { timeoutSeconds: ${timeoutSeconds}, exempt: { namespaces: [kube-system] } }`;

/** Writes postern.yaml and a kubeconfig. A cluster's name is `STAGE-NUMBER`; the name is also the cluster's token. */
const writeFleetConfig = async (
  checkout: string,
  rules: string[],
  { stage, count }: { stage: string; count: number },
  { apiServerUrl }: FleetHost,
) => {
  const names = Array.from({ length: count }, (_, index) => `${stage}-${index}`);
  const connect = (name: string) => `{ eks: ${name}, region: eu-west-1, server: "${apiServerUrl}", ca: cluster.crt }`;
  // Every tenth cluster has another mode for a rule, as in a fleet with several kinds of clusters.
  const otherMode = `rules: { ${rules[0]}: { mode: warn } }`;
  const clusters = names.map(
    (name, index) => `  ${name}: { connect: ${connect(name)}${index % 10 === 9 ? `, ${otherMode}` : ""} }\n`,
  );
  const general = rules.map((name) => `  ${formatRule(name)}\n`);
  await writeFile(join(checkout, "postern.yaml"), `rules:\n${general.join("")}clusters:\n${clusters.join("")}`);
  const entries = names.map((name) => ({
    context: { name, context: { cluster: name, user: name } },
    cluster: { name, cluster: { server: apiServerUrl, "certificate-authority": join(checkout, "cluster.crt") } },
    user: { name, user: { token: name } },
  }));
  const kubeconfig = {
    ...{ apiVersion: "v1", kind: "Config", "current-context": names[0] },
    contexts: entries.map(({ context }) => context),
    clusters: entries.map(({ cluster }) => cluster),
    users: entries.map(({ user }) => user),
  };
  await writeFile(join(checkout, "kubeconfig"), JSON.stringify(kubeconfig));
};

const generatedRule = `
import { rule } from "#lib/rule.ts";
export default rule({
  summary: "Denies nothing.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
  validate() {},
});
`;
const generatedCase = `
- name: admits a pod
  validate: { metadata: { name: a } }
  admitted: true
`;
