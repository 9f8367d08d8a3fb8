import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Progress } from "../infra/cli/progress.ts";
import type { DeploymentJob } from "../infra/rollout/preparation.ts";
import type { StagePackage } from "../infra/rollout/versions/package.ts";

// Deploys a catalogue and a postern.yaml of a checkout to the stage `test`, in this process or in another one, which a
// test kills. Each folder below trees/ in the checkout is a catalogue, a set of rules.

/** Builds the bundles and the template of a stage, as packageStage does. */
export type StagePackager = typeof import("../infra/rollout/versions/package.ts").packageStage;

/** The input of a deployment, which another process gets as JSON. */
export interface CatalogueDeployment {
  /** The checkout. */
  folder: string;
  /** The catalogue's folder below trees/. */
  name: string;
  /** The YAML of the rule's configuration in postern.yaml. */
  ruleConfig: string;
  kubeconfig: string;
  /** The CA of the gateway. */
  ca: string;
  /** The value of an environment variable of functions, by which each deployment publishes new versions. */
  mark: string;
}

/** Returns a Progress that adds the name of each step and each message to `steps`. */
export const recordProgress = (steps: string[]): Progress => ({
  say: (line) => void steps.push(line),
  step: async (name, act) => {
    steps.push(name);
    await act(() => {});
  },
});

const quiet: Progress = { say: () => {}, step: async (_, act) => void (await act(() => {})) };
const loadFrom = <T>(folder: string, path: string): Promise<T> => import(pathToFileURL(join(folder, path)).href);
const getPackageFile = ({ folder, name }: CatalogueDeployment) => join(folder, "trees", `${name}.json`);

/** Opens the AWS clients of the stage with the access key of a caller. */
export const openStageAs = async (folder: string, caller: string) => {
  process.env.AWS_ACCESS_KEY_ID = caller;
  const { createAwsStageClients: openStage } = await loadFrom<typeof import("../infra/aws/stage.ts")>(
    folder,
    "infra/aws/stage.ts",
  );
  const stage = openStage("test");
  await stage.readAwsKeys(); // The client of Lambda keeps this caller's key, even if the environment gets another one.
  return stage;
};

/**
 * Builds the job of a deployment by the checkout's own modules, with this catalogue and this text of a postern.yaml.
 */
export const loadJob = async (
  folder: string,
  catalogueFolder: string,
  configText: string,
  overrides: Partial<DeploymentJob>,
): Promise<DeploymentJob> => {
  const load = <T>(path: string) => loadFrom<T>(folder, path);
  const { createAwsStageClients: openStage } = await load<typeof import("../infra/aws/stage.ts")>("infra/aws/stage.ts");
  const registry = await load<typeof import("../infra/catalogue/registry.ts")>("infra/catalogue/registry.ts");
  const { parseConfig } = await load<typeof import("../infra/project/project.ts")>("infra/project/project.ts");
  const source = { name: catalogueFolder, folder: join(folder, catalogueFolder) };
  const catalogue = await registry.readCatalogue([source]);
  const config = parseConfig(configText, catalogue);
  return {
    stage: openStage("test"),
    config,
    catalogue,
    file: join(folder, "postern.yaml"),
    clusters: [...config.clusters.keys()],
    deployer: { kubeconfig: join(folder, "kubeconfig") },
    harden: false,
    wave: 1,
    progress: quiet,
    ...overrides,
  };
};

/**
 * Opens the job that deploys the rules in the folder trees/NAME of a checkout. The deployment calls AWS with the access
 * key of `caller`, by which the stand-in for AWS tells callers apart.
 */
export const openDeploymentJob = async (
  { folder, name, ruleConfig, kubeconfig, ca }: CatalogueDeployment,
  caller: string,
): Promise<DeploymentJob> => {
  const text = `rules: { stamp-notes: ${ruleConfig} }\nclusters: { shop: {} }`;
  const stage = await openStageAs(folder, caller);
  return loadJob(folder, `trees/${name}`, text, { stage, ca, deployer: { kubeconfig } });
};

/**
 * Returns a function that packages the stages of a checkout as a deployment does, but runs osls, which takes a second,
 * only once for the same input.
 */
export const createPackager = async (folder: string): Promise<StagePackager> => {
  const { packageStage } = await loadFrom<typeof import("../infra/rollout/versions/package.ts")>(
    folder,
    "infra/rollout/versions/package.ts",
  );
  const { packageStack } = await loadFrom<typeof import("../infra/aws/stack.ts")>(folder, "infra/aws/stack.ts");
  const read = (file: string) => readFile(join(folder, file), "utf8");
  const stateFile = ".serverless/serverless-state.json";
  const packed = new Map<string, { template: string; state: string }>();
  const pack: typeof packageStack = async (stage) => {
    const inputs = ["serverless.yml", "dist/functions.json", "dist/http.json", "dist/url.json"].map(read);
    const key = JSON.stringify([stage, ...(await Promise.all(inputs))]);
    const earlier = packed.get(key);
    if (earlier === undefined) {
      const template = await packageStack(stage);
      packed.set(key, { template: JSON.stringify(template), state: await read(stateFile) });
      return template;
    }
    // osls has deleted the folder after the last deployment.
    await mkdir(join(folder, ".serverless"), { recursive: true });
    await writeFile(join(folder, stateFile), earlier.state);
    return JSON.parse(earlier.template);
  };
  return (stage, config, catalogue, file, publicKeys) => packageStage(stage, config, catalogue, file, publicKeys, pack);
};

/** Returns a function that reads the package that packAndStore has written, because building it takes time. */
const readPackage = (deployment: CatalogueDeployment) => async (): Promise<StagePackage> => {
  const currentCaller = String(process.env.AWS_ACCESS_KEY_ID); // The imitated AWS tells callers apart by this id.
  const { catalogue } = await openDeploymentJob(deployment, currentCaller);
  const { parts, ...rest } = JSON.parse(await readFile(getPackageFile(deployment), "utf8"));
  const revive = (part: { name: string; wanted: { zip: string; environment: object } }) => ({
    ...part,
    listed: catalogue.find(({ name }) => name === part.name),
    wanted: {
      ...part.wanted,
      zip: Buffer.from(part.wanted.zip, "base64"),
      environment: { ...part.wanted.environment, MARK: deployment.mark }, // A new mark makes new versions of functions.
    },
  });
  return { ...rest, parts: parts.map(revive) };
};

/** Returns a function that builds the package of a deployment, and also writes it into a file for readPackage. */
const packAndStore =
  (deployment: CatalogueDeployment, packageStage: StagePackager): StagePackager =>
  async (...args) => {
    const built = await packageStage(...args);
    // `listed` is the rule with its functions, which JSON can't contain. readPackage takes it from the catalogue again.
    const parts = built.parts.map(({ listed: _, wanted, ...part }) => {
      return { ...part, wanted: { ...wanted, zip: Buffer.from(wanted.zip).toString("base64") } };
    });
    await writeFile(getPackageFile(deployment), JSON.stringify({ ...built, parts }));
    return built;
  };

/** Deploys a catalogue with the code of the checkout `folder`, and returns the sentence that the deployment reports. */
export const deployCatalogue = async (
  deployment: CatalogueDeployment,
  caller: string,
  isPacked: boolean,
): Promise<string> => {
  const { folder } = deployment;
  const { deployStage: deploy } = await loadFrom<typeof import("../infra/rollout/deploy.ts")>(
    folder,
    "infra/rollout/deploy.ts",
  );
  const { packageStage } = await loadFrom<typeof import("../infra/rollout/versions/package.ts")>(
    folder,
    "infra/rollout/versions/package.ts",
  );
  const build = isPacked ? readPackage(deployment) : packAndStore(deployment, packageStage);
  const showNoPlan = async () => {};
  return deploy(await openDeploymentJob(deployment, caller), showNoPlan, build);
};

/** Returns code for `node --eval` that deploys a packaged catalogue, with a clock that is `ahead` milliseconds fast. */
export const buildProgram = (deployment: CatalogueDeployment, caller: string, ahead: number) => `
  const RealDate = Date;
  globalThis.Date = class extends RealDate {
    constructor(...parts) { super(...(parts.length === 0 ? [RealDate.now() + ${ahead}] : parts)); }
    static now() { return RealDate.now() + ${ahead}; }
  };
  const isPacked = true;
  const { deployCatalogue } = await import(${JSON.stringify(import.meta.url)});
  const deployed = deployCatalogue(${JSON.stringify(deployment)}, ${JSON.stringify(caller)}, isPacked);
  console.log(await deployed.catch(({ message }) => message));
`;
