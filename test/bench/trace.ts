import { readFile } from "node:fs/promises";
import { isDeepStrictEqual } from "node:util";
import { parse } from "yaml";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import type { AnsweredReviewFacts } from "#lib/core/log-line.ts";
import type { KubernetesObject, UserInfo } from "#lib/review.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { estimateMillionReviews } from "../../infra/commands/rules.ts";
import { chooseCluster } from "../../infra/config/config.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import type { CachedGoProgram } from "../../infra/kubernetes/build/go-programs.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { buildNativePolicies, toPolicySupport } from "../../infra/webhooks/native-policies.ts";
import type { ControlPlaneBinaries } from "../control-plane/binaries.ts";
import { getCollectionPath, type TestClusterClient } from "../control-plane/client.ts";
import { bootCluster } from "../control-plane/cluster.ts";
import {
  applyConfigurations,
  extendWebhookTimeoutsForTests,
  serveTestRules,
  type WebhookManifests,
  waitUntil,
} from "../parity/rule-server.ts";
import { openScriptedWebhookEndpoints } from "../parity/scripted-endpoints.ts";
import { openDelayProxy } from "./delay-proxy.ts";
import { startGoWebhook } from "./processes/processes.ts";
import { measureMilliseconds } from "./ratios.ts";

/** A kind of write in inputs/trace.yaml. */
interface TraceWrite {
  what: string;
  /** The number of these writes in an hour. */
  hourly: number;
  /** The number of rules that must change the object; measureTrace throws if it is another number. */
  changes?: number;
  refused?: boolean;
  method: "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  user: UserInfo;
  body?: object;
}

interface Trace {
  writes: TraceWrite[];
  objects: KubernetesObject[];
  /** The config of each rule, as in postern.yaml. Null stands for the defaults. */
  rules: Record<string, object | null>;
  /** The rules that are called one by one at first, and then as a group. */
  group: string[];
  policies: Record<string, [group: string, resource: string, expression: string]>;
}

/** The calls and times of writes of one kind. Numbers of calls are averages for a write. */
export interface TraceKindMeasurement {
  what: string;
  /** The fraction of all writes that are of this kind. */
  share: number;
  /** The number of rules that must change the object of each write; undefined if any number may. */
  changes?: number | undefined;
  /** The calls of each rule or group, by its name and the phase. */
  calls: Record<string, number>;
  /** The mutating calls, which a write waits for one after the other. */
  mutatingRounds: number;
  /** The mutating calls, and one more if there are validating calls, which take place at the same time. */
  rounds: number;
  /** Further mutating calls of a rule for the same write: after a change by this rule, or only by others. */
  repeatedCalls: { afterOwnChange: number; withoutOwnChange: number };
  /** The rules that changed an object. */
  changing: string[];
  /** For each network delay to the webhooks: how many milliseconds longer each write took with webhooks. */
  added: Record<number, number[]>;
}

/** The measurement of one way to call the rules, such as each rule alone. It has no dollars if Postern isn't called. */
export interface TraceWayMeasurement {
  what: string;
  writeKinds: TraceKindMeasurement[];
  /** The dollars for a million writes, by endpoint type. */
  dollars?: { url: number; http: number };
}

export interface TraceMeasurement {
  title: string;
  /** The cost of the same writes for each way to call the rules: each rule alone, some rules as a group, and so on. */
  ways: TraceWayMeasurement[];
}

/** The network delays of a round's writes, in milliseconds. A round has four writes without a delay. */
const delays = [0, 0, 0, 0, 5, 5, 20];
/** Writes that call no webhook are fast, so the number of their rounds is multiplied by this factor. */
const silentRoundsFactor = 5;
const ruleGroupName = "pod-defaults";

/** Measures the cost of writes with many rules: each write goes to an API server with webhooks and to one without. */
export const measureTrace = async (
  binaries: ControlPlaneBinaries,
  goWebhook: CachedGoProgram | undefined,
  folder: string,
  rounds: number,
): Promise<TraceMeasurement> => {
  await using running = new AsyncDisposableStack();
  const text = await readFile(new URL("inputs/trace.yaml", import.meta.url), "utf8");
  const { writes, objects, rules, group, policies }: Trace = parse(text, { merge: true });
  const catalogue = (await readCatalogue()).filter(({ name }) => name in rules);
  const policySettings = { settings: { policies: Object.entries(policies).flatMap(buildPolicy) } };
  const buildConfig = (groups: object, configuredRules: Trace["rules"] = rules) =>
    JSON.stringify({ rules: { ...configuredRules, "validating-admission-policy": policySettings }, groups });

  const boot = async () => {
    const cluster = await bootCluster(binaries);
    running.defer(cluster.stop);
    const created = await createObjects(cluster.admin, objects);
    const pod = created.find(({ kind, metadata }) => kind === "Pod" && metadata?.name === "cart");
    const uid = String(Reflect.get(pod?.metadata ?? {}, "uid"));
    /** Returns a function that sends a write with the uid of this cluster's Pod. */
    const prepare = (write: TraceWrite) => {
      const clusterWrite: TraceWrite = JSON.parse(JSON.stringify(write).replace("UID-OF-CART", uid));
      return () => send(cluster.admin, clusterWrite);
    };
    return { ...cluster, prepare };
  };
  const [plain, hooked] = [await boot(), await boot()];
  let delay = 0;
  const openProxy = async (url: string) => running.use(await openDelayProxy(url, () => delay)).url;
  const server = await openProxy(hooked.server);
  const credentials = { token: hooked.getToken("admin") };
  const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
  const openCapabilities = createLiveCapabilities({ local: { server, ca: hooked.ca, credentials } });
  const postern = await serveTestRules(catalogue, buildConfig({}), { certificate, openCapabilities });
  running.defer(postern.stop);
  const posternUrl = await openProxy(postern.url);
  const scripted = await openScriptedWebhookEndpoints(certificate);
  running.defer(scripted.stop);
  const register = (manifests: WebhookManifests, toUrl = (url: string) => url.replace(postern.url, posternUrl)) => {
    const delayed = extendWebhookTimeoutsForTests(manifests).map((manifest) => ({
      ...manifest,
      webhooks: manifest.webhooks.map(({ clientConfig, ...entry }) => {
        return { ...entry, clientConfig: { ...clientConfig, url: toUrl(clientConfig.url) } };
      }),
    }));
    return applyConfigurations(hooked.admin, delayed, scripted.detector);
  };

  const total = sum(writes.map(({ hourly }) => hourly));
  const measureKind = async (write: TraceWrite, times: number): Promise<TraceKindMeasurement> => {
    const added: Record<number, number[]> = Object.fromEntries(delays.map((milliseconds) => [milliseconds, []]));
    const reviews: AnsweredReviewFacts[][] = [];
    const [sendPlain, sendHooked] = [plain.prepare({ ...write, refused: false }), hooked.prepare(write)];
    // Rounds with a negative number warm up, and aren't counted.
    for (let round = -Math.ceil(times / 5); round < times; round++)
      for (const milliseconds of delays) {
        delay = milliseconds;
        const time = { plain: 0, hooked: 0 };
        const turns = [
          async () => {
            time.plain = await measureMilliseconds(sendPlain);
          },
          async () => {
            time.hooked = await measureMilliseconds(sendHooked);
          },
        ];
        postern.reports.length = 0;
        for (const turn of Math.random() < 0.5 ? turns : turns.reverse()) await turn();
        if (round < 0) continue;
        added[milliseconds]?.push(time.hooked - time.plain);
        reviews.push(postern.reports.map(({ request: _, ...report }) => report));
      }
    const { what, hourly, changes } = write;
    return { what, share: hourly / total, changes, ...countCalls(reviews), added };
  };
  /**
   * Measures another way to call the rules. Kinds of writes that call nothing in the first way aren't measured again.
   */
  const measureWay = async (
    what: string,
    first: TraceWayMeasurement,
    measuredWrites = writes,
  ): Promise<TraceWayMeasurement> => {
    const writeKinds: TraceKindMeasurement[] = [];
    for (const write of measuredWrites) {
      const knownKind = first.writeKinds.find((kind) => kind.what === write.what);
      writeKinds.push(knownKind && isSilent(knownKind) ? knownKind : await measureKind(write, rounds));
    }
    return { what, writeKinds };
  };
  const addDollars = (way: TraceWayMeasurement): TraceWayMeasurement => {
    const estimate = (type: "url" | "http") => {
      const costs = way.writeKinds.flatMap(({ share, calls }) =>
        Object.entries(calls).map(([called, count]) => {
          const [name = ""] = called.split(" ");
          const names = name === ruleGroupName ? group : [name];
          const members = catalogue.filter((listed) => names.includes(listed.name)).map(({ rule }) => rule);
          return share * count * estimateMillionReviews(...members)[type];
        }),
      );
      return sum(costs);
    };
    return { ...way, dollars: { url: estimate("url"), http: estimate("http") } };
  };

  await register(postern.manifests());
  const alone: TraceWayMeasurement = { what: "each rule alone", writeKinds: [] };
  for (const write of writes) {
    const times = isSilent(await measureKind(write, 1)) ? rounds * silentRoundsFactor : rounds;
    const kind = await measureKind(write, times);
    if (write.changes !== undefined && kind.changing.length !== write.changes)
      throw new Error(`${write.what} are changed by ${kind.changing.join(", ") || "no rule"}`);
    alone.writeKinds.push(kind);
  }

  postern.serve(buildConfig({ [ruleGroupName]: group }));
  await register(postern.manifests());
  const grouped = await measureWay("mutators of Pods in a group", alone);

  const policySupport = toPolicySupport(binaries.minor);
  await register(postern.manifests({ policySupport }));
  const [, cluster] = chooseCluster(parseConfig(buildConfig({}), catalogue), undefined);
  await createObjects(hooked.admin, buildNativePolicies(catalogue, { ...cluster, policySupport }, "postern"));
  await waitUntil("the API server does not evaluate the policies", () => refusesUnlabelledPods(hooked.admin, writes));
  const native = await measureWay("and the policies in the API server", alone);

  const peers: TraceWayMeasurement[] = [];
  if (goWebhook) {
    const go = running.use(await startGoWebhook(goWebhook.program, folder));
    const goUrl = (await openProxy(go.url)).concat("/");
    const sent = writes.filter(
      ({ what, refused }) => !refused && native.writeKinds.some((kind) => kind.what === what && !isSilent(kind)),
    );
    const changed = sent.filter(({ changes }) => changes !== undefined);
    const sendAndReadSpecs = () => Promise.all(changed.map((write) => hooked.prepare(write)()));
    const wanted = await sendAndReadSpecs();
    await register(
      postern.manifests({ policySupport }),
      (url) => goUrl + (url.includes(`/${ruleGroupName}/`) ? "pod" : "allow"),
    );
    if (!isDeepStrictEqual(await sendAndReadSpecs(), wanted))
      throw new Error("the webhook in Go does not change Pods as the group does");
    peers.push(await measureWay(`the same entries, controller-runtime ${goWebhook.version}`, native, sent));
  }

  const { "node-restriction": _, ...rulesInEks } = rules;
  postern.serve(buildConfig({ [ruleGroupName]: group }, rulesInEks));
  await register(postern.manifests({ policySupport }));
  const inEks = await measureWay("and without node-restriction, whose plugin EKS has on", alone);

  const title = `TRACE, ${catalogue.length} rules, ${Object.keys(policies).length} policies, Kubernetes ${binaries.version}`;
  return { title, ways: [...[alone, grouped, native, inEks].map(addDollars), ...peers] };
};

const sum = (numbers: number[]) => numbers.reduce((total, number) => total + number, 0);

export const countAllCalls = ({ calls }: Pick<TraceKindMeasurement, "calls">) => sum(Object.values(calls));
/** Reports whether writes of a kind call no webhook. */
const isSilent = (kind: TraceKindMeasurement) => countAllCalls(kind) === 0;

const createObjects = async (admin: TestClusterClient, objects: KubernetesObject[]) => {
  const created: KubernetesObject[] = [];
  for (const object of objects) {
    const { code, body } = await admin({ method: "POST", path: getCollectionPath(object), body: object });
    if (code === 201) created.push(body);
    else if (code !== 409) throw new Error(`the API server refuses a ${object.kind}: ${body.message}`);
  }
  return created;
};

/** Sends a write as a dry run; returns the spec of the object. */
const send = async (client: TestClusterClient, { method, path, user, body, refused = false }: TraceWrite) => {
  const contentType = method === "PATCH" ? "application/strategic-merge-patch+json" : "application/json";
  const request = { method, path: `${path}?dryRun=All`, contentType, impersonate: user, ...(body && { body }) };
  const { code, body: answer } = await client(request);
  const isRefused = code >= 300;
  if (isRefused !== refused) throw new Error(`${method} ${path} is answered with ${code}: ${answer.message}`);
  return answer.spec;
};

/**
 * Reports whether the policies are in effect: they refuse a Pod without labels. Only writes of Pods have `changes`, so
 * the first of these gives the Pod. Without one, no policy can be tried, and the function returns true.
 */
const refusesUnlabelledPods = (admin: TestClusterClient, writes: TraceWrite[]) => {
  const [podWrite] = writes.filter(({ changes }) => changes);
  return podWrite
    ? send(admin, { ...podWrite, body: { ...podWrite.body, metadata: { name: "a" } }, refused: true }).then(
        () => true,
        () => false,
      )
    : true;
};

const buildPolicy = ([name, [group, resource, expression]]: [string, Trace["policies"][string]]) => {
  const apiVersion = "admissionregistration.k8s.io/v1";
  const rule = { apiGroups: [group], apiVersions: ["v1"], resources: [resource], operations: ["CREATE", "UPDATE"] };
  const spec = { matchConstraints: { resourceRules: [rule] }, validations: [{ expression }] };
  const binding = { policyName: name, validationActions: ["Deny"] };
  return [
    { apiVersion, kind: "ValidatingAdmissionPolicy", metadata: { name }, spec },
    { apiVersion, kind: "ValidatingAdmissionPolicyBinding", metadata: { name }, spec: binding },
  ];
};

/**
 * Returns averages for a write. Each mutating call is a round, because the API server makes one after the other; the
 * validating calls, which it makes in parallel, are one round. A call of a group of rules is in `reviews` once for the
 * group, and again for some of its members (with `groupOfMember`). The repetitions for members don't count.
 */
const countCalls = (
  writes: AnsweredReviewFacts[][],
): Pick<TraceKindMeasurement, "calls" | "mutatingRounds" | "rounds" | "repeatedCalls" | "changing"> => {
  const calls: Record<string, number> = {};
  const repeatedCalls = { afterOwnChange: 0, withoutOwnChange: 0 };
  const changing = new Set<string>();
  const rounds = { mutating: 0, validating: 0 };
  for (const reviews of writes) {
    /** For each rule that was called for this write: whether one of its calls changed the object. */
    const hasChangedByRule = new Map<string, boolean>();
    for (const { rule, phase, code, operations, group: groupOfMember, error } of reviews) {
      if (code !== 200) throw error ?? new Error(`${rule} answers ${code}`);
      if (groupOfMember !== undefined) continue;
      const called = `${rule} ${phase}`;
      calls[called] = (calls[called] ?? 0) + 1;
      if (phase !== "mutate") continue;
      rounds.mutating += 1;
      const hadChanged = hasChangedByRule.get(rule);
      if (hadChanged !== undefined) repeatedCalls[hadChanged ? "afterOwnChange" : "withoutOwnChange"] += 1;
      hasChangedByRule.set(rule, hadChanged || operations > 0);
      if (operations > 0) changing.add(rule);
    }
    if (reviews.some(({ phase }) => phase === "validate")) rounds.validating += 1;
  }
  const average = (count: number) => count / writes.length;
  return {
    calls: Object.fromEntries(Object.entries(calls).map(([called, count]) => [called, average(count)])),
    mutatingRounds: average(rounds.mutating),
    rounds: average(rounds.mutating + rounds.validating),
    repeatedCalls: {
      afterOwnChange: average(repeatedCalls.afterOwnChange),
      withoutOwnChange: average(repeatedCalls.withoutOwnChange),
    },
    changing: [...changing],
  };
};
