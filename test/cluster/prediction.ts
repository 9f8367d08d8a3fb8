import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { KubernetesObject } from "#lib/review.ts";
import type { Since } from "#lib/since.ts";
import { fillDefaults, prepareForStorage } from "../../infra/apiserver/defaults/defaults.ts";
import { prepareManifestCheck } from "../../infra/check/check.ts";
import type { ObjectEvaluation } from "../../infra/check/evaluation/object-evaluation.ts";
import { chooseCluster } from "../../infra/config/config.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { listPlugins, requireBinaries } from "../control-plane/binaries.ts";
import type { TestClusterClient, TestClusterResponse } from "../control-plane/client.ts";
import { bootCluster, type TestClusterOptions } from "../control-plane/cluster.ts";
import { formatAnswerDiff } from "../parity/compare.ts";
import { selectNewest } from "../parity/generators/served-versions.ts";
import { openScriptedWebhookEndpoints } from "../parity/scripted-endpoints.ts";
import { createObserver, registerWitness, type Seen } from "./witness.ts";

/** A test cluster with the plugins that are on by default, and what check says of manifests for it. */
export interface PredictedCluster {
  admin: TestClusterClient;
  /** The objects that the API server got, as its mutating plugins left them. */
  seen: Seen;
  /** Writes manifests to a file and returns its path. */
  writeManifests(items: readonly object[]): Promise<string>;
  /** Returns the objects of lists, which are read by these paths. */
  readLists(paths: readonly string[]): Promise<KubernetesObject[]>;
  /** Returns the evaluations of the manifests in these files, as creations in the present state of the cluster. */
  predict(paths: readonly string[]): Promise<ObjectEvaluation[]>;
  /** Returns the evaluations of manifests and reviews in a state, and the notes of the check. */
  predictIn(
    state: readonly object[],
    given: { manifests?: readonly object[]; reviews?: readonly object[] },
  ): Promise<{ evaluations: ObjectEvaluation[]; notes: string[] }>;
  stop(): Promise<unknown>;
}

/**
 * Boots a test cluster; `fill` creates objects while plugins are off. `statePaths` are the paths of the objects that plugins
 * read.
 */
export const bootPredictedCluster = async (
  minor: string,
  statePaths: readonly string[],
  options: TestClusterOptions & { fill(admin: TestClusterClient): Promise<unknown> },
): Promise<PredictedCluster> => {
  const binaries = await requireBinaries(minor);
  const folder = await mkdtemp(join(tmpdir(), "postern-predicted-"));
  const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
  const seen: Seen = new Map();
  const scripted = await openScriptedWebhookEndpoints(certificate, { witness: createObserver(seen) });
  const stops = [scripted.stop, () => rm(folder, { recursive: true, force: true })];
  const stopAll = () => Promise.all(stops.map((stop) => stop()));
  const { defaultOn } = await listPlugins(binaries);
  const fill: NonNullable<TestClusterOptions["late"]>["fill"] = (as) => options.fill(as("admin"));
  let admin: TestClusterClient;
  try {
    const late = { enable: defaultOn, fill };
    const cluster = await bootCluster(binaries, { ...options, disable: defaultOn, late });
    stops.push(cluster.stop);
    admin = cluster.admin;
    await registerWitness(admin, scripted.url, certificate.ca, seen);
  } catch (error) {
    await stopAll();
    throw error;
  }

  let files = 0;
  const writeManifests = async (items: readonly object[]): Promise<string> => {
    const file = join(folder, `${++files}.json`);
    await writeFile(file, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
    return file;
  };
  const readLists = async (paths: readonly string[]): Promise<KubernetesObject[]> => {
    const lists = await Promise.all(paths.map((path) => admin({ method: "GET", path })));
    return lists.flatMap(({ body }) => {
      // The items of a list have no kind and apiVersion.
      const type = { apiVersion: String(body.apiVersion), kind: String(body.kind).replace(/List$/, "") };
      return (Array.isArray(body.items) ? body.items : []).map((item) => ({ ...type, ...item }));
    });
  };
  const runCheck = async (files: Record<"paths" | "reviews" | "state", readonly string[]>, operation?: "CREATE") => {
    const yaml = JSON.stringify({ rules: {}, clusters: { local: { kubernetes: minor } } });
    const check = await prepareManifestCheck({
      ...files,
      ...{ catalogue: [], cluster: chooseCluster(parseConfig(yaml, []), undefined), harden: false },
      ...{ old: [], webhooks: [], hosts: [], plugins: [], operation, namespace: "default", alsoPods: false },
      user: predictedUser,
    });
    const evaluations = await Array.fromAsync(check.evaluations);
    assert.deepEqual(check.faults, []);
    return { evaluations, notes: [...check.notes] };
  };
  const predict = async (paths: readonly string[]): Promise<ObjectEvaluation[]> => {
    const state = [await writeManifests(await readLists(statePaths))];
    return (await runCheck({ paths, reviews: [], state }, "CREATE")).evaluations;
  };
  const writeIfAny = async (items: readonly object[] = []) => (items.length > 0 ? [await writeManifests(items)] : []);
  const predictIn: PredictedCluster["predictIn"] = async (state, { manifests, reviews }) =>
    runCheck({
      paths: await writeIfAny(manifests),
      reviews: await writeIfAny(reviews),
      state: await writeIfAny(state),
    });
  return { admin, seen, writeManifests, readLists, predict, predictIn, stop: stopAll };
};

/** Returns how check's outcome differs from the API server's, as a text; undefined if they are equal. */
export const describeDifference = (...compared: Parameters<typeof compareOutcomes>): string | undefined => {
  const [wanted, actual] = withoutRandomNames(compareOutcomes(...compared));
  return isDeepStrictEqual(actual, wanted) ? undefined : formatAnswerDiff(toAnswer(wanted), toAnswer(actual));
};

const toAnswer = (body: unknown) => ({ code: 0, warnings: [], body });

/** The user of all requests. */
export const predictedUser = { username: "admin", groups: ["system:masters", "system:authenticated"] };

/** Reports whether the API server refused an object between both phases of admission, because it is invalid. */
export const isByValidation = ({ code, body }: TestClusterResponse): boolean =>
  (code === 422 && !isByPolicy(body.message)) || isByAllocation(body);

/** Reports whether the API server could allocate no address to a Service, which it tries before it looks at the name. */
const isByAllocation = ({ message }: TestClusterResponse["body"]): boolean =>
  /\bfailed to allocate\b/.test(String(message));

/** Returns the faults of an object that the API server refuses as invalid, each with its field; undefined if it looks at none. */
const listFaults = ({ body }: TestClusterResponse): string[] | undefined => {
  const causes: Record<string, string>[] = Object(body.details).causes ?? [];
  // Of a change that isn't allowed, check shows neither the value nor the difference.
  const shorten = (message = "") =>
    message.split("\n", 1)[0]?.replace(/^(Invalid value: ).*: (field is immutable)$/, "$1$2");
  return isByAllocation(body) ? undefined : causes.map(({ field, message }) => `${field}: ${shorten(message)}`);
};

/** Returns the faults for which check says that API validation refuses an object. */
export const listPredictedFaults = ({ denials }: ObjectEvaluation["checked"]): string[] =>
  denials
    .filter(({ rule }) => rule === "API validation")
    .map(({ message }) => message.replace(/; \S+ changed the object$/, ""));

const isByPolicy = (message: unknown): boolean => / denied request: /.test(String(message));

/**
 * Returns the API server's outcome and check's, reduced to the parts that can be compared. The API server validates an
 * object between both phases of admission; what validating plugins would say of an invalid one, it doesn't ask. `last` is
 * the object that a creation's last webhook got.
 */
const compareOutcomes = (
  answer: TestClusterResponse,
  last: Record<string, unknown> | undefined,
  { checked, after }: ObjectEvaluation,
  minor: string,
): [unknown, unknown] => {
  const { code, body, warnings } = answer;
  // The witness gets an object before the API server prepares it for storage, and before it is read again.
  const prepared = last && prepareForStorage(last as KubernetesObject, minor);
  const object = prepared && dropServerFields(fillDefaults(prepared, minor).object, serverFields);
  // The order among policies is random in the API server.
  const denial =
    checked.denials.find(({ message }) => sortParts(message) === sortParts(body.message)) ?? checked.denials[0];
  // check says in its own words, with the field, why an object can't be read.
  if (code === 400) return [code, denial?.code];
  if (isByValidation(answer)) {
    // check knows only some of the faults, but each of them is one of the API server's.
    const faults = listFaults(answer);
    // The API server doesn't look into a field that it refuses as a whole, such as the second source of a volume.
    const isInside = (fault: string) => faults?.some((known) => fault.startsWith(`${known.split(": ", 1)[0]}.`));
    const unfounded = listPredictedFaults(checked).filter(
      (fault) => faults && !faults.includes(fault) && !isInside(fault),
    );
    const predicted = last && dropServerFields(after, serverFields);
    if (unfounded.length > 0) return [faults, unfounded];
    // What check can't decide, such as a plugin, may have changed the object.
    return checked.undecided.length > 0 ? [undefined, undefined] : [object, predicted];
  }
  // Go's words for a patch of a policy that makes an object unreadable; check looks at the policy's next mutation, too.
  if (code === 500 && /json: cannot unmarshal|strict decoding/.test(String(body.message)))
    return [true, denial !== undefined];
  // Of a policy that check can't decide, the API server may show the refusal.
  if (isByPolicy(body.message) && checked.undecided.length > 0) return [true, denial !== undefined];
  if (code >= 300)
    return [
      { code, message: sortParts(body.message) },
      { code: denial?.code, message: sortParts(denial?.message) },
    ];
  const ours = checked.warnings.map(({ text }) => text);
  const isDeletion = body.kind === "Status" || Object(body.metadata).deletionTimestamp !== undefined;
  const dropped = last
    ? serverFields
    : [...serverFields, ...storageFields, ...(selectNewest(gatedFields, minor) ?? [])];
  const [stored, predicted] = isDeletion
    ? []
    : [object ?? dropServerFields(body, dropped), dropServerFields(after, dropped)];
  return [
    { object: stored, warnings: warnings.filter(isOfPlugin).sort(), denied: undefined },
    { object: predicted, warnings: ours.filter(isOfPlugin).sort(), denied: denial?.message },
  ];
};

/**
 * Sorts what LimitRanger lists, which has the random order of Go's maps; and replaces the no-break space that the package
 * of protobuf puts into its errors in some programs.
 */
const sortParts = (message: unknown): string =>
  String(message)
    .replaceAll("\u00a0", " ")
    .replace(/(?<=is forbidden: \[)(?=m|\S+ max limit ).*(?=\]$)/, (parts) => parts.split(", ").sort().join());

/** Returns an object without fields that the API server sets or drops outside of all plugins. */
const dropServerFields = (object: unknown, dropped: readonly string[]): unknown => {
  const { metadata, ...rest } = Object(object);
  const kept = Object.entries(Object(metadata)).filter(([name]) => !serverFields.includes(name));
  const content = JSON.stringify(rest, (name, value) => (dropped.includes(name) ? undefined : value));
  return { ...JSON.parse(content), metadata: Object.fromEntries(kept) };
};
const serverFields = ["uid", "creationTimestamp", "resourceVersion", "generation", "managedFields"];
/** Fields that the storage drops, because their feature gate is off: image volumes. check keeps them. */
const gatedFields: Since<readonly string[]> = { "1.0": ["volumes"], "1.35": [] };
/** What the storage of Services and volumes chooses, or drops with a Service's type; only an update's answer is stored. */
const storageFields = [
  ...["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "nodePort", "healthCheckNodePort"],
  ...["externalTrafficPolicy", "internalTrafficPolicy", "allocateLoadBalancerNodePorts"],
  ...["dataSourceRef", "lastPhaseTransitionTime"],
];

/** Returns values without the part of volume names that the ServiceAccount plugin draws by lot. */
const withoutRandomNames = <T>(values: T): T =>
  JSON.parse(JSON.stringify(values).replaceAll(/(?<=kube-api-access-)[a-z0-9]{5}/g, "…"));

const isOfPlugin = (warning: string) => /^(would violate PodSecurity|Validation failed for) /.test(warning);
