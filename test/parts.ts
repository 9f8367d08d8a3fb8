import { spawnSync } from "node:child_process";
import { findModule } from "../infra/kubernetes/find-module.ts";
import { findActionlint } from "./actionlint/actionlint.ts";
import { findCfnLint, findDynamoDb, findMissingRuntimeClient, findMoto, type Tool } from "./aws/tools.ts";
import { celMinors, findCelEvaluator } from "./bench/peers/cel-go.ts";
import { findBenchControllerRuntimeWebhook } from "./bench/peers/controller-runtime.ts";
import { findBuiltKinitirasEngine } from "./bench/peers/kinitiras.ts";
import { findBuilders } from "./builders/builders.ts";
import { chooseOtherMinor } from "./choices.ts";
import { findPublishedManifests } from "./cluster/published.ts";
import { findMissingRelay } from "./cluster/relay.ts";
import { findMissingChromium } from "./console.ts";
import { findScheduler, newestMinor, requireBinaries } from "./control-plane/binaries.ts";
import { findKubectl } from "./kubectl/kubectl.ts";
import { findPodSecurityEvaluator } from "./parity/pod-security/evaluator.ts";
import { findMissingNpmRegistry } from "./registry/registry.ts";

const getMissingTool = (tool: Tool) => ("missing" in tool ? tool.missing : undefined);
const findCelEvaluators = async () => {
  const found = await Promise.all(celMinors.map((minor) => findCelEvaluator(minor)));
  return found.includes(undefined) ? undefined : found;
};
const explainIfMissing = async (find: () => Promise<unknown>, sentence: string) =>
  (await find()) === undefined ? sentence : undefined;

/**
 * The parts that suites need besides `npm ci`. Each function returns the reason why a part can't be used, or undefined.
 */
const parts = {
  actionlint: () => explainIfMissing(findActionlint, "actionlint is not here: npm run cluster builds it"),
  "API server": () => requireBinaries().then(() => undefined, getMessage),
  "older API server": () => requireBinaries(chooseOtherMinor()).then(() => undefined, getMessage),
  "CEL evaluator": () =>
    explainIfMissing(findCelEvaluators, "upstream's evaluators of CEL are not here: npm run cluster builds them"),
  "cfn-lint": () => getMissingTool(findCfnLint()),
  chromium: findMissingChromium,
  "DynamoDB Local": () => getMissingTool(findDynamoDb()),
  "helm and kustomize": () =>
    explainIfMissing(findBuilders, "helm and kustomize are not here: npm run cluster builds them"),
  git: () => (spawnSync("git", ["--version"]).status === 0 ? undefined : "git is not installed"),
  "Go webhook": () =>
    explainIfMissing(findBenchControllerRuntimeWebhook, "the webhook in Go is not here: npm run cluster builds it"),
  kubectl: () => explainIfMissing(findKubectl, "kubectl is not here: npm run cluster builds it"),
  kinitiras: () =>
    explainIfMissing(
      findBuiltKinitirasEngine,
      "kinitiras' engine is not here: node test/bench/peers/kinitiras.ts builds it",
    ),
  "Kubernetes module": () =>
    explainIfMissing(findModule, "Kubernetes' handlers are not here: npm run kubernetes builds them"),
  moto: () => getMissingTool(findMoto()),
  "Pod Security evaluator": () =>
    explainIfMissing(
      findPodSecurityEvaluator,
      "upstream's Pod Security evaluator is not here: npm run cluster builds it",
    ),
  "published manifests": () =>
    explainIfMissing(
      findPublishedManifests,
      "manifests of other projects are not here: npm run cluster downloads them",
    ),
  registry: findMissingNpmRegistry,
  relay: findMissingRelay,
  "runtime client": findMissingRuntimeClient,
  scheduler: () => explainIfMissing(findScheduler, "kube-scheduler is not here: npm run cluster builds it"),
};

const getMessage = (error: Error) => error.message;

/** Parts whose absence is never an error: kinitiras' module is not available everywhere. */
const optionalParts = new Set<Part>(["kinitiras"]);

export type Part = keyof typeof parts;

/**
 * Returns options for a suite that needs these parts. The suite is skipped with a reason if a part is missing or has
 * another version than the project pins. With POSTERN_REQUIRE_ALL in the environment it fails instead.
 */
export const needs = async (...names: Part[]): Promise<{ skip: string | false }> => {
  for (const name of names) {
    const sentence = await parts[name]();
    if (sentence === undefined) continue;
    if (process.env.POSTERN_REQUIRE_ALL && !optionalParts.has(name)) throw new Error(sentence);
    return { skip: sentence };
  }
  return { skip: false };
};

/** Returns the options of a suite that needs the API server of a minor: the newest, or the other one of this run. */
export const needsApiServer = (minor: string): Promise<{ skip: string | false }> =>
  needs(minor === newestMinor ? "API server" : "older API server");
