import { rmSync } from "node:fs";
import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { createMemoryLedger } from "#lib/ledger.ts";
import type { Capabilities } from "#lib/needs.ts";
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
import { getComparisonConfig, listParityObjectFlags, type PluginPort, type PortComparisonConfig } from "./plugins.ts";
import { waitUntil } from "./rule-server.ts";

/** A server with the compiled-in plugin and one without it that can call the port. All else is equal. */
export interface ParityServerPair {
  upstream: TestCluster;
  ours: TestCluster;
  /** The settings of the port under which it should answer exactly as the plugin. */
  settings: object;
  /** Opens the port's capabilities in our cluster, with a cache of their own. */
  world(): (cluster: string, milliseconds: number) => Capabilities;
}

/** A folder for the pair's files, and the stack of servers and files to dispose of in the end. */
interface PairResources {
  folder: string;
  stack: AsyncDisposableStack;
}

/**
 * Flags of both kube-apiservers: many Service addresses, because the Services are deleted only at the end; and
 * privileged pods are allowed.
 */
const flags = ["--service-cluster-ip-range=10.0.0.0/16", "--allow-privileged=true"];
/** The name of the user whose credentials the port reads the cluster with; generated requests have other users. */
const reader = "postern";

/**
 * Boots both servers with the same objects. With `latePlugin`, the plugin is on only after `latePlugin.fill` created
 * objects.
 */
export const bootParityServerPair = async (
  port: PluginPort,
  binaries: ControlPlaneBinaries,
  place: PairResources,
  latePlugin?: TestClusterOptions["late"],
): Promise<ParityServerPair> => {
  const { plugin, settings } = port.rule.upstreamPlugin;
  const config = getComparisonConfig(plugin, binaries.minor);
  const backend =
    config.imageBackend && (await openImageBackend(place.folder, place.stack, { images: answerAboutImages }));
  const set = config.policies && policySets[config.policies];
  const standard = mergeWithDefaults(
    settings ?? {},
    mergeWithDefaults(config.settings ?? {}, {
      ...(backend && { backend: await readServiceKubeconfig(backend.images) }),
      ...(set && { policies: [...set.policies, ...set.surroundings.filter(isCustomKind)] }),
    }),
  );
  const plugins = await listPlugins(binaries);
  const staying = [plugin, ...webhookPlugins, ...(config.keptPlugins ?? [])];
  const others = plugins.defaultOn.filter((other) => config.alone && !staying.includes(other));
  const wishes = {
    store: await getPreparedStore(binaries),
    flags: [...flags, ...(config.flags ?? [])],
    audit: true,
    users: { [reader]: [buildKubernetesGroupName(reader, port.name)] },
    ...(config.rbac && { rbac: true }),
  };
  // The plugin's configuration leaves out settings that only the rule has, because plugins don't accept them.
  const settingsOfRule = Object.keys(settings ?? {});
  const taken = Object.fromEntries(Object.entries(standard).filter(([key]) => !settingsOfRule.includes(key)));
  // The plugin gets the service by a kubeconfig, and the rule by the settings that postern.yaml's reader makes of it.
  const named = mergeWithDefaults(taken, backend && { imagePolicy: { kubeConfigFile: backend.images } });
  const configuration = await writeConfiguration(plugin, config, named, place.folder);
  const clusters = await bootClusters(binaries, [
    {
      ...wishes,
      disable: others,
      flags: [...wishes.flags, ...configuration],
      ...(latePlugin ? { late: latePlugin } : { enable: [plugin] }),
    },
    { ...wishes, disable: [...others, ...(plugins.defaultOn.includes(plugin) ? [plugin] : [])] },
  ]);
  for (const { stop } of clusters) place.stack.defer(stop);
  const [upstream, ours] = clusters as [TestCluster, TestCluster];
  if (config.rbac) await grantRights(port, standard, ours);
  if (set)
    await Promise.all([createPolicies(upstream.admin, set, binaries.minor), createPolicySurroundings(ours.admin, set)]);

  const { server, ca, getToken } = ours;
  const connections = { local: { server, ca, credentials: { token: getToken(reader) } } };
  const openCapabilities = () => {
    const ledger = createMemoryLedger();
    return createLiveCapabilities(connections, { openLedger: () => ledger });
  };
  return { upstream, ours, settings: standard, world: openCapabilities };
};

/** Creates the RBAC objects by which a port's user may read what the port needs, and nothing else. */
const grantRights = async (port: PluginPort, settings: object, { admin }: TestCluster) => {
  const [local] = parseConfig(JSON.stringify({ rules: { [port.name]: { settings } } }), [port]).clusters.values();
  for (const body of local ? buildFunctionRbacObjects([port], local, reader) : []) await createObject(admin, body);
};

const createObject = async (admin: TestClusterClient, body: KubernetesObject) => {
  const { code, body: said } = await admin({ method: "POST", path: getCollectionPath(body), body });
  if (code !== 201) throw new Error(`the API server refuses a ${body.kind}: ${said.message}`);
};

const isCustomKind = ({ kind }: KubernetesObject) => kind === "CustomResourceDefinition";
const policySets = { validating: validatingPolicySet, mutating: mutatingPolicySet };

/** Builds an object of each kind that the last policy of a set refuses. */
const buildRefusedObjects = ({ refused }: PolicySet) =>
  refused.map((kind) => ({
    ...kind,
    metadata: { generateName: "last-", namespace: "default", labels: { policy: "last" } },
  }));

/** Creates what policies refer to: their parameters, and custom kinds. */
const createPolicySurroundings = async (admin: TestClusterClient, set: PolicySet) => {
  for (const object of set.surroundings) await createObject(admin, object);
  for (const path of buildRefusedObjects(set).map(getCollectionPath))
    await waitUntil("a custom kind is not served", async () => (await admin({ method: "GET", path })).code === 200);
};

/** Creates the policies and what they refer to in a cluster that evaluates them; waits until it does. */
export const createPolicies = async (admin: TestClusterClient, set: PolicySet, minor: string) => {
  await createPolicySurroundings(admin, set);
  for (const object of [...set.policies, ...set.lastPolicy]) {
    const { apiVersion = "", kind = "" } = object;
    await createObject(admin, { ...object, apiVersion: getServedVersion(kind, apiVersion, minor) ?? apiVersion });
  }
  for (const body of buildRefusedObjects(set))
    await waitUntil("the API server does not evaluate its policies", async () => {
      const path = `${getCollectionPath(body)}?dryRun=All`;
      const { body: said } = await admin({ method: "POST", path, body });
      return String(said.message).includes(set.lastMessage);
    });
};

/** Returns a folder with the etcd data of a cluster that has the surroundings. Made once, with every plugin off. */
const getPreparedStore = (binaries: ControlPlaneBinaries): Promise<string> => {
  const { minor } = binaries;
  const existing = preparedStores.get(minor);
  const store = existing ?? createPreparedStore(binaries);
  if (!existing) preparedStores.set(minor, store);
  return store;
};
const preparedStores = new Map<string, Promise<string>>();

const createPreparedStore = async (binaries: ControlPlaneBinaries): Promise<string> => {
  const folder = await mkdtemp(join(tmpdir(), "postern-store-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  const { defaultOn: disable } = await listPlugins(binaries);
  const cluster = await bootCluster(binaries, {
    flags: [...flags, ...listParityObjectFlags(binaries.minor)],
    disable,
  });
  try {
    await createParityTestObjects(cluster.admin, binaries.minor);
    await cluster.keep(join(folder, "store"));
  } catch (error) {
    await cluster.stop();
    throw error;
  }
  return join(folder, "store");
};

/** Writes the configuration file of an admission plugin, and returns kube-apiserver's flag that names the file. */
const writeConfiguration = async (
  name: string,
  { configuration }: PortComparisonConfig,
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
