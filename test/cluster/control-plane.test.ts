import assert from "node:assert/strict";
import { mkdtempDisposable, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { createMemoryLedger } from "#lib/ledger.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { chooseCluster } from "../../infra/config/config.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { buildWebhookConfigurations } from "../../infra/webhooks/configurations.ts";
import { buildKubeconfig } from "../checkout.ts";
import { choosePart } from "../choices.ts";
import { findScheduler, requireBinaries } from "../control-plane/binaries.ts";
import type { TestClusterClient } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { type RunningProgram, startProgram } from "../control-plane/process.ts";
import { applyConfigurations, serveTestRules, waitUntil } from "../parity/rule-server.ts";
import { openScriptedWebhookEndpoints } from "../parity/scripted-endpoints.ts";
import { createTestSigner } from "../parity/test-key.ts";
import { needs } from "../parts.ts";
import { endpointFaults, openFaultyEndpoints } from "./endpoint-faults.ts";
import {
  buildKubeletUsers,
  buildLeaseRenewal,
  buildNodeStatusPatch,
  buildPodStatusPatch,
  startKubelets,
} from "./kubelets.ts";

// Tests a control plane with its default times, and thirty rules whose endpoints all have a fault. The control plane
// must keep its leaders and nodes, and must roll a Deployment. A run with POSTERN_FAULT_SECONDS=120 also prints the
// tables of docs/how-to/outages.md.
const faultSeconds = Number(process.env.POSTERN_FAULT_SECONDS || 16);
const programs = ["kube-controller-manager", "kube-scheduler"] as const;
const nodeCount = 50;
const replicas = 20;
/** The largest number of repetitions of a write during a fault. */
const rounds = 20;

/**
 * The sections of thirty rules in postern.yaml. `timeoutSeconds` replaces the rule's own timeout (3 seconds for most),
 * so that the API server waits at most 20 seconds in total for the calls of a write.
 */
const sections: Record<string, object> = {
  "allowed-registries": { settings: { registries: ["registry.example.com"] } },
  "always-pull-images": {},
  "certificate-approval": {},
  "certificate-signing": {},
  "certificate-subject-restriction": {},
  "default-ingress-class": {},
  "default-storage-class": {},
  "default-toleration-seconds": {},
  "deny-escalating-exec": {},
  "deny-service-external-ips": {},
  "event-rate-limit": { settings: { limits: [{ type: "Server", qps: 1000, burst: 1000 }] } },
  "extended-resource-toleration": {},
  "limit-ranger": {},
  "mutating-admission-policy": { timeoutSeconds: 2, settings: { policies: buildPolicy("Mutating") } },
  "namespace-exists": { timeoutSeconds: 2 },
  "namespace-lifecycle": { timeoutSeconds: 2 },
  "node-restriction": { timeoutSeconds: 2 },
  "owner-references-permission-enforcement": {},
  "persistent-volume-claim-resize": {},
  "pod-node-selector": {},
  "pod-security": {},
  "pod-toleration-restriction": {},
  "pod-topology-labels": {},
  priority: {},
  "resource-quota": { timeoutSeconds: 4, settings: { charges: true } },
  "runtime-class": {},
  "service-account": {},
  "storage-object-in-use-protection": {},
  "taint-nodes-by-condition": {},
  "validating-admission-policy": { timeoutSeconds: 4, settings: { policies: buildPolicy("Validating") } },
};
const groups = {
  defaults: ["limit-ranger", "priority", "default-toleration-seconds", "extended-resource-toleration", "runtime-class"],
  guards: ["service-account", "always-pull-images", "pod-node-selector", "pod-toleration-restriction"],
};

/** Returns a policy that matches every write of every resource, with its binding. */
function buildPolicy(kind: "Mutating" | "Validating") {
  const [apiVersion, name] = ["admissionregistration.k8s.io/v1", "everything"];
  const everything = { apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["CREATE", "UPDATE"] };
  // The patch changes nothing: the API server only has to evaluate the policy and to apply a patch for each write.
  const jsonPatch = {
    expression: `has(object.metadata) && "seen" in object.metadata.?annotations.orValue({})
      ? [] : [JSONPatch{op: "test", path: "/kind", value: object.kind}]`,
  };
  const policySpec =
    kind === "Mutating"
      ? { reinvocationPolicy: "Never", mutations: [{ patchType: "JSONPatch", jsonPatch }] }
      : { validations: [{ expression: `!("forbidden" in object.metadata.?labels.orValue({}))` }] };
  const actions = kind === "Validating" && { validationActions: ["Deny"] };
  return [
    {
      apiVersion,
      kind: `${kind}AdmissionPolicy`,
      metadata: { name },
      spec: { failurePolicy: "Fail", matchConstraints: { resourceRules: [everything] }, ...policySpec },
    },
    { apiVersion, kind: `${kind}AdmissionPolicyBinding`, metadata: { name }, spec: { policyName: name, ...actions } },
  ];
}

const getDefaultPath = (resource: string, api = "/api/v1") => `${api}/namespaces/default/${resource}`;
const deploymentsPath = getDefaultPath("deployments", "/apis/apps/v1");
const slicesPath = getDefaultPath("endpointslices", "/apis/discovery.k8s.io/v1");
const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const buildPod = (spec: object = {}) => ({
  metadata: { generateName: "probe-", labels: { app: "probe" } },
  spec: { containers: [{ name: "a", image: "registry.example.com/app:1" }], ...spec },
});
const buildDeployment = (name: string, count: number) => ({
  metadata: { name },
  spec: {
    replicas: count,
    selector: { matchLabels: { app: name } },
    template: { ...buildPod({ terminationGracePeriodSeconds: 1 }), metadata: { labels: { app: name } } },
  },
});

/** Reports whether a control plane needs a write at any time, such as a lease's renewal. */
const isVital = (write: string) => /leases|\/status|events|endpointslices/.test(write);

const formatTime = (milliseconds: number) => `${Math.round(milliseconds / 1000)} s`;

/** Formats a table with a row for each write and a column for each fault. */
const formatTable = (policy: string, columns: ReadonlyMap<string, ReadonlyMap<string, string>>): string => {
  const writes = [...new Set([...columns.values()].flatMap((column) => [...column.keys()]))];
  const rows = [
    [policy, ...columns.keys()],
    ["---", ...[...columns].map(() => "---")],
    ...writes.map((write) => [write, ...[...columns.values()].map((column) => column.get(write) ?? "")]),
  ];
  return `\n${rows.map((row) => `| ${row.join(" | ")} |\n`).join("")}`;
};

describe("a control plane", await needs("API server", "scheduler"), () => {
  const stack = new AsyncDisposableStack();
  /** The times of writes by failure policy and fault, for the table. */
  const times = { Ignore: new Map<string, Map<string, string>>(), Fail: new Map<string, Map<string, string>>() };
  const runningPrograms = new Map<string, RunningProgram>();
  const endedPrograms = new Set<string>();
  let cluster: TestCluster;
  let admin: TestClusterClient;
  let kubelets: Awaited<ReturnType<typeof startKubelets>>;
  let endpoints: Awaited<ReturnType<typeof openFaultyEndpoints>>;
  let registerRules: (policy: "Fail" | "Ignore") => Promise<void>;

  const post = (path: string, body: object) => admin({ method: "POST", path, body });
  const create = async (path: string, body: object): Promise<any> => {
    const { code, body: created } = await post(path, body);
    assert.equal(code, 201, String(created.message));
    return created;
  };
  const read = async (path: string): Promise<any> => (await admin({ method: "GET", path })).body;
  const patch = (path: string, body: object) =>
    admin({ method: "PATCH", path, contentType: "application/merge-patch+json", body });
  const readLeader = async (name: string) => {
    const { spec } = await read(`${leasesPath}/${name}`);
    return spec === undefined ? undefined : `${spec.holderIdentity} after ${spec.leaseTransitions} changes`;
  };
  const readLeaders = () => Promise.all(programs.map(readLeader));
  /** Returns the nodes that are not ready. */
  const listLostNodes = async (): Promise<string[]> => {
    const { items } = await read("/api/v1/nodes");
    return items
      .filter(
        ({ status }: any) => !status.conditions.some(({ type, status }: any) => type === "Ready" && status === "True"),
      )
      .map(({ metadata }: any) => metadata.name);
  };
  const hasRolled = async () => {
    const { metadata, spec, status } = await read(`${deploymentsPath}/web`);
    const counts = [status.replicas, status.updatedReplicas, status.availableReplicas];
    return status.observedGeneration === metadata.generation && counts.every((count) => count === spec.replicas);
  };

  before(async () => {
    const { path: folder } = stack.use(await mkdtempDisposable(join(tmpdir(), "postern-control-plane-")));
    const binaries = await requireBinaries();
    const scheduler = await findScheduler();
    cluster = await bootCluster(binaries, { users: buildKubeletUsers(nodeCount) });
    stack.defer(cluster.stop);
    admin = cluster.admin;

    const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
    const { detector, stop } = await openScriptedWebhookEndpoints(certificate);
    stack.defer(stop);
    const connection = { server: cluster.server, ca: cluster.ca, credentials: { token: cluster.getToken("admin") } };
    const ledger = createMemoryLedger();
    const catalogue = (await readCatalogue()).filter(({ name }) => Object.hasOwn(sections, name));
    const guards = catalogue.filter(({ rule, name }) => rule.guards || name === "validating-admission-policy");
    /** Returns a postern.yaml. The guards have this failurePolicy; all other rules have the failurePolicy Ignore. */
    const buildConfig = (policy: "Fail" | "Ignore") => {
      const rules: Record<string, object> = {};
      for (const [name, section] of Object.entries(sections)) rules[name] = { ...section, failurePolicy: "Ignore" };
      for (const { name } of guards) rules[name] = { ...sections[name], failurePolicy: policy };
      return JSON.stringify({ rules, groups });
    };
    endpoints = await openFaultyEndpoints(() => served.url);
    stack.defer(endpoints.stop);
    const served = await serveTestRules(catalogue, buildConfig("Ignore"), {
      certificate,
      openCapabilities: createLiveCapabilities({ local: connection }, { openLedger: () => ledger }),
      wrapHandler: (_, handler) => endpoints.wrap(handler),
    });
    stack.defer(served.stop);
    const signer = createTestSigner(1);
    registerRules = async (policy) => {
      const text = buildConfig(policy);
      served.serve(text);
      const [name, local] = chooseCluster(parseConfig(text, catalogue), undefined);
      const url = `${endpoints.url}/${signer.segment(name, 1)}`;
      // Throws if webhook entries could delay a write for too long.
      const manifests = buildWebhookConfigurations(catalogue, local, {
        name: "postern",
        address: (rule, path) => `${url}/${rule}/${path}`,
        ca: certificate.ca,
        harden: false,
      });
      await applyConfigurations(admin, manifests, detector);
    };

    kubelets = await startKubelets(cluster, nodeCount);
    stack.defer(kubelets.stop);
    const kubeconfig = join(folder, "kubeconfig");
    await writeFile(kubeconfig, buildKubeconfig({ test: cluster }), { mode: 0o600 });
    const flags = [`--kubeconfig=${kubeconfig}`, "--secure-port=0"];
    const start = (name: (typeof programs)[number], file: string, extraFlags: string[] = []) => {
      const program = startProgram(file, [...flags, ...extraFlags]);
      stack.defer(program.stop);
      runningPrograms.set(name, program);
      program.ended.then(() => endedPrograms.add(name));
    };
    start("kube-controller-manager", binaries.controllerManager, ["--use-service-account-credentials"]);
    start("kube-scheduler", scheduler?.program ?? "");
    await waitUntil("the control plane has no leaders", async () =>
      (await readLeaders()).every((leader) => leader !== undefined),
    );
    await waitUntil("the default service account is missing", async () =>
      Boolean((await read(getDefaultPath("serviceaccounts/default"))).metadata?.uid),
    );
    await create(deploymentsPath, buildDeployment("web", replicas));
    await create(deploymentsPath, buildDeployment("idle", 0));
    await create(getDefaultPath("pods"), { ...buildPod({ nodeName: "node-1" }), metadata: { name: "placed" } });
    await create(slicesPath, { metadata: { name: "slice" }, addressType: "IPv4", endpoints: [] });
    await create(leasesPath, { metadata: { name: "probe" } });
    await waitUntil("the Deployment does not run", hasRolled);
  });
  after(async () => {
    await stack.disposeAsync();
    if (!process.env.POSTERN_FAULT_SECONDS) return;
    for (const [policy, columns] of Object.entries(times)) process.stdout.write(formatTable(policy, columns));
  });

  /**
   * Returns a function that writes as clients do until a fault ends. It returns the longest time of each write, and
   * whether the write was refused.
   */
  const prepareWrites = async () => {
    const kubelet = kubelets.getClient("node-1");
    const unboundPods: string[] = [];
    while (unboundPods.length < rounds)
      unboundPods.push((await create(getDefaultPath("pods"), buildPod({ schedulerName: "none" }))).metadata.name);
    const bind = async (name: string) => {
      const target = { kind: "Node", name: "node-2" };
      return post(getDefaultPath(`pods/${name}/binding`), { metadata: { name }, target });
    };
    const unnamed = { metadata: { generateName: "probe-" } };
    const event = { ...unnamed, involvedObject: { kind: "Pod", namespace: "default", name: "placed" } };
    const now = () => String(Date.now());
    const writes: Record<string, () => ReturnType<TestClusterClient>> = {
      "UPDATE leases of leaders": () => patch(`${leasesPath}/probe`, { spec: { holderIdentity: now() } }),
      "UPDATE leases of nodes": () => kubelet(buildLeaseRenewal("node-1")),
      "UPDATE nodes/status": () => kubelet(buildNodeStatusPatch("node-1")),
      "UPDATE pods/status": () => kubelet(buildPodStatusPatch(getDefaultPath("pods/placed"))),
      "CREATE events": () => post(getDefaultPath("events"), event),
      "UPDATE endpointslices": () => patch(`${slicesPath}/slice`, { metadata: { labels: { at: now() } } }),
      "CREATE pods": () => post(getDefaultPath("pods"), buildPod({ schedulerName: "none" })),
      "CREATE pods/binding": () => bind(unboundPods.pop() ?? ""),
      "CREATE serviceaccounts/token": () => post(getDefaultPath("serviceaccounts/default/token"), { spec: {} }),
      "UPDATE deployments": () => patch(`${deploymentsPath}/idle`, { metadata: { annotations: { at: now() } } }),
      "CREATE configmaps": () => post(getDefaultPath("configmaps"), unnamed),
      "CREATE namespaces": () => post("/api/v1/namespaces", unnamed),
    };
    const repeat = async (name: string, write: () => ReturnType<TestClusterClient>, end: number) => {
      let longest = 0;
      let isRefused = false;
      for (let round = 0; round < rounds && Date.now() < end; round += 1) {
        const start = Date.now();
        const { code } = await write();
        // An answer after `end` doesn't count, because the fault may have ended before the answer.
        if (Date.now() >= end) break;
        longest = Math.max(longest, Date.now() - start);
        isRefused ||= code >= 300;
        await wait((faultSeconds * 1000) / rounds);
      }
      return { name, longest, isRefused };
    };
    return (end: number) => Promise.all(Object.entries(writes).map(([name, write]) => repeat(name, write, end)));
  };

  const isChosen = choosePart("control plane", endpointFaults.length);
  for (const policy of ["Ignore", "Fail"] as const)
    describe(`a control plane whose guards (rules for security) have failurePolicy ${policy}`, () => {
      before(() => registerRules(policy));

      for (const [index, fault] of endpointFaults.entries())
        if (isChosen(index + (policy === "Fail" ? 1 : 0)))
          it(`a control plane keeps leaders and nodes, and rolls a Deployment, while endpoints ${fault}`, async () => {
            const leaders = await readLeaders();
            kubelets.failures.length = 0;
            const measureWrites = await prepareWrites();
            const annotations = { roll: `${policy} ${fault}` };
            const spec = { template: { metadata: { annotations } } };
            assert.equal((await patch(`${deploymentsPath}/web`, { spec })).code, 200);
            await endpoints.begin(fault);
            const start = Date.now();
            const end = start + faultSeconds * 1000;
            const lostNodes = new Set<string>();
            const watchNodes = async () => {
              for (; Date.now() < end; await wait(1000)) for (const node of await listLostNodes()) lostNodes.add(node);
            };
            const watchRoll = async () => {
              for (; Date.now() < end; await wait(500)) if (await hasRolled()) return Date.now() - start;
              return undefined;
            };
            const endFault = async () => {
              await wait(faultSeconds * 1000 + 100);
              await endpoints.begin();
            };
            const tasks = [measureWrites(end), watchRoll(), watchNodes(), endFault()] as const;
            const [measured, rolledAfter] = await Promise.all(tasks);
            assert.deepEqual(
              [...endedPrograms].map((name) => `${name}: ${runningPrograms.get(name)?.tail().slice(-600)}`),
              [],
            );
            assert.deepEqual(await readLeaders(), leaders);
            assert.deepEqual([...lostNodes], []);
            // A guard that fails closed also refuses a kubelet's deletion of its Pod. The kubelet tries again.
            const isExpected = (failure: string) => policy === "Fail" && failure.includes(": DELETE ");
            assert.deepEqual(
              kubelets.failures.filter((failure) => !isExpected(failure)),
              [],
            );
            const refused = measured.filter(({ isRefused }) => isRefused).map(({ name }) => name);
            assert.deepEqual(policy === "Ignore" ? refused : refused.filter(isVital), []);
            await waitUntil("the Deployment did not roll", hasRolled, 120_000 + 3 * faultSeconds * 1000);
            await admin({ method: "DELETE", path: getDefaultPath("pods?labelSelector=app%3Dprobe") });
            const column = new Map<string, string>();
            for (const { name, longest, isRefused } of measured)
              column.set(name, `${formatTime(longest)}${isRefused ? ", refused" : ""}`);
            column.set("a Deployment of 20 Pods rolls", formatTime(rolledAfter ?? Date.now() - start));
            times[policy].set(fault, column);
          });
    });
});
