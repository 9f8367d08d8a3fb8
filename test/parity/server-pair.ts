import { rmSync } from "node:fs";
import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { createMemoryLedger } from "#lib/ledger.ts";
import type { OpenCapabilities } from "#lib/needs.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { readServiceKubeconfig } from "../../infra/config/kubeconfig.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { buildFunctionRbacObjects, buildKubernetesGroupName } from "../../infra/webhooks/rbac.ts";
import { type ControlPlaneBinaries, listPlugins, webhookPlugins } from "../control-plane/binaries.ts";
import { getCollectionPath, type TestClusterClient } from "../control-plane/client.ts";
import { bootCluster, bootClusters, type TestCluster, type TestClusterOptions } from "../control-plane/cluster.ts";
import { mutatingPolicySet } from "./generators/mutating-policies.ts";
import { getServedVersion } from "./generators/served-versions.ts";
import { createParityTestObjects } from "./generators/surroundings.ts";
import { type PolicySet, validatingPolicySet } from "./generators/validating-policies.ts";
import { answerAboutImages, openImageBackend } from "./image-backend.ts";
import { type ComparisonConfig, getComparisonConfig, listParityObjectFlags, type PluginPort } from "./plugins.ts";
import { waitUntil } from "./rule-server.ts";

/** Two API servers that differ only in one plugin: `upstream` has it, `ours` can call the rule instead. */
export interface ParityServerPair {
  upstream: TestCluster;
  ours: TestCluster;
  /** The settings with which the rule should answer exactly as the plugin. */
  settings: object;
  /** Returns a function that makes the rule's capabilities in the cluster `ours`. Each call creates a new cache. */
  openCapabilities(): OpenCapabilities;
}

/** A folder for the pair's files, and the stack of servers and files to dispose of in the end. */
interface PairResources {
  folder: string;
  stack: AsyncDisposableStack;
}

/**
 * Flags of both kube-apiservers: a large range of addresses, because Services are deleted only at the end; and
 * privileged pods.
 */
const flags = ["--service-cluster-ip-range=10.0.0.0/16", "--allow-privileged=true"];
/** The user as which the rule reads the cluster. Generated requests have other users. */
const reader = "postern";

/**
 * Boots two API servers with the same objects: one with the plugin that a rule reimplements, one without the plugin.
 * With `latePlugin`, the plugin is turned on after `latePlugin.fill` has created objects.
 */
export const bootParityServerPair = async (
  port: PluginPort,
  binaries: ControlPlaneBinaries,
  { folder, stack }: PairResources,
  latePlugin?: TestClusterOptions["late"],
): Promise<ParityServerPair> => {
  const { plugin, settings: settingsOnlyOfRule = {} } = port.rule.upstreamPlugin;
  const config = getComparisonConfig(plugin, binaries.minor);
  const backend = config.imageBackend && (await openImageBackend(folder, stack, { images: answerAboutImages }));
  const set = config.policies && policySets[config.policies];
  const ruleSettings = mergeWithDefaults(
    settingsOnlyOfRule,
    mergeWithDefaults(config.settings ?? {}, {
      ...(backend && { backend: await readServiceKubeconfig(backend.images) }),
      // The rule finds the schemas of custom kinds among its policies.
      ...(set && { policies: [...set.policies, ...set.neededObjects.filter(isCustomKind)] }),
    }),
  );
  const plugins = await listPlugins(binaries);
  const keptPlugins = [plugin, ...webhookPlugins, ...(config.keptPlugins ?? [])];
  const disabledPlugins = plugins.defaultOn.filter((other) => config.otherPluginsOff && !keptPlugins.includes(other));
  const commonOptions = {
    store: await getPreparedStore(binaries),
    flags: [...flags, ...(config.flags ?? [])],
    audit: true,
    users: { [reader]: [buildKubernetesGroupName(reader, port.name)] },
    ...(config.rbac && { rbac: true }),
  };
  // Settings that only the rule has are left out of the plugin's configuration, because the plugin doesn't accept them.
  const namesOnlyOfRule = Object.keys(settingsOnlyOfRule);
  const shared = Object.fromEntries(Object.entries(ruleSettings).filter(([key]) => !namesOnlyOfRule.includes(key)));
  // The plugin reads the backend's kubeconfig from a file. The rule has the contents of this file in its settings.
  const pluginSettings = mergeWithDefaults(shared, backend && { imagePolicy: { kubeConfigFile: backend.images } });
  const configurationFlags = await writeConfiguration(plugin, config, pluginSettings, folder);
  const clusters = await bootClusters(binaries, [
    {
      ...commonOptions,
      disable: disabledPlugins,
      flags: [...commonOptions.flags, ...configurationFlags],
      ...(latePlugin ? { late: latePlugin } : { enable: [plugin] }),
    },
    { ...commonOptions, disable: [...disabledPlugins, ...(plugins.defaultOn.includes(plugin) ? [plugin] : [])] },
  ]);
  for (const { stop } of clusters) stack.defer(stop);
  const [upstream, ours] = clusters as [TestCluster, TestCluster];
  if (config.rbac) await grantRights(port, ruleSettings, ours);
  if (set)
    await Promise.all([
      createPolicies(upstream.admin, set, binaries.minor),
      createObjectsThatPoliciesNeed(ours.admin, set),
    ]);

  const { server, ca, getToken } = ours;
  const connections = { local: { server, ca, credentials: { token: getToken(reader) } } };
  const openCapabilities = () => {
    const ledger = createMemoryLedger();
    return createLiveCapabilities(connections, { openLedger: () => ledger });
  };
  return { upstream, ours, settings: ruleSettings, openCapabilities };
};

/** Creates the RBAC objects that give the rule's user the rights of the rule's needs, and no other rights. */
const grantRights = async (rule: PluginPort, settings: object, { admin }: TestCluster) => {
  // A configuration without clusters has one cluster, `local`.
  const [local] = parseConfig(JSON.stringify({ rules: { [rule.name]: { settings } } }), [rule]).clusters.values();
  for (const body of local ? buildFunctionRbacObjects([rule], local, reader) : []) await createObject(admin, body);
};

const createObject = async (admin: TestClusterClient, body: KubernetesObject) => {
  const { code, body: answer } = await admin({ method: "POST", path: getCollectionPath(body), body });
  if (code !== 201) throw new Error(`the API server refuses a ${body.kind}: ${answer.message}`);
};

const isCustomKind = ({ kind }: KubernetesObject) => kind === "CustomResourceDefinition";
const policySets = { validating: validatingPolicySet, mutating: mutatingPolicySet };

/** Builds an object of each kind that a set's last policy refuses. Once they are refused, all policies are in use. */
const buildRefusedObjects = ({ kindsRefusedByReadinessPolicy }: PolicySet) =>
  kindsRefusedByReadinessPolicy.map((kind) => ({
    ...kind,
    metadata: { generateName: "last-", namespace: "default", labels: { policy: "last" } },
  }));

/** Creates the objects to which policies refer: parameters and CustomResourceDefinitions. */
const createObjectsThatPoliciesNeed = async (admin: TestClusterClient, set: PolicySet) => {
  for (const object of set.neededObjects) await createObject(admin, object);
  // The refused objects include one of each custom kind that the policies match.
  for (const path of buildRefusedObjects(set).map(getCollectionPath))
    await waitUntil(
      "timed out: a custom kind is still not served",
      async () => (await admin({ method: "GET", path })).code === 200,
    );
};

/**
 * Creates policies, and the objects to which they refer, in a cluster. Waits until the cluster evaluates the policies.
 */
export const createPolicies = async (admin: TestClusterClient, set: PolicySet, minor: string) => {
  await createObjectsThatPoliciesNeed(admin, set);
  for (const object of [...set.policies, ...set.readinessPolicyAndBinding]) {
    const { apiVersion = "", kind = "" } = object;
    await createObject(admin, { ...object, apiVersion: getServedVersion(kind, apiVersion, minor) ?? apiVersion });
  }
  for (const body of buildRefusedObjects(set))
    await waitUntil("timed out: the API server still does not evaluate its policies", async () => {
      const path = `${getCollectionPath(body)}?dryRun=All`;
      const { body: answer } = await admin({ method: "POST", path, body });
      return String(answer.message).includes(set.readinessMessage);
    });
};

/** Returns a folder with the etcd data of a cluster with the initial objects, which is created once for each minor. */
const getPreparedStore = (binaries: ControlPlaneBinaries): Promise<string> => {
  const { minor } = binaries;
  const existing = preparedStores.get(minor);
  const store = existing ?? createPreparedStore(binaries);
  if (!existing) preparedStores.set(minor, store);
  return store;
};
const preparedStores = new Map<string, Promise<string>>();

/** Boots a cluster without plugins, creates the initial objects, and returns the folder of its etcd data. */
const createPreparedStore = async (binaries: ControlPlaneBinaries): Promise<string> => {
  const folder = await mkdtemp(join(tmpdir(), "postern-store-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  const { defaultOn: disable } = await listPlugins(binaries);
  const cluster = await bootCluster(binaries, { flags: [...flags, ...listParityObjectFlags(binaries.minor)], disable });
  try {
    await createParityTestObjects(cluster.admin, binaries.minor);
    await cluster.stopAndCopyData(join(folder, "store"));
  } catch (error) {
    await cluster.stop();
    throw error;
  }
  return join(folder, "store");
};

/** Writes the configuration file of an admission plugin, and returns kube-apiserver's flag that names the file. */
const writeConfiguration = async (
  name: string,
  { configuration }: ComparisonConfig,
  settings: object,
  folder: string,
) => {
  if (!configuration) return [];
  const file = join(folder, "admission.json");
  const plugins = [{ name, configuration: { ...configuration, ...settings } }];
  const body = { apiVersion: "apiserver.config.k8s.io/v1", kind: "AdmissionConfiguration", plugins };
  await writeFile(file, JSON.stringify(body));
  return [`--admission-control-config-file=${file}`];
};
