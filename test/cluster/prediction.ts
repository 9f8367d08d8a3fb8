import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { KubernetesObject } from "#lib/review.ts";
import { newestKubernetes } from "#lib/since.ts";
import { prepareManifestCheck } from "../../infra/check/check.ts";
import type { FieldValidation, ObjectEvaluation } from "../../infra/check/evaluation/object-evaluation.ts";
import { chooseCluster } from "../../infra/config/config.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { listPlugins, requireBinaries } from "../control-plane/binaries.ts";
import type { TestClusterClient, TestClusterResponse } from "../control-plane/client.ts";
import { bootCluster, type TestClusterOptions } from "../control-plane/cluster.ts";
import { startSharedKubernetes } from "../kubernetes.ts";
import { formatAnswerDiff } from "../parity/compare.ts";

/** A test cluster with the plugins that are on by default, and what check says of manifests for it. */
export interface PredictedCluster {
  admin: TestClusterClient;
  /** Writes manifests to a file and returns its path. */
  writeManifests(items: readonly object[]): Promise<string>;
  /** Returns the objects of lists, which are read by these paths. */
  readLists(paths: readonly string[]): Promise<KubernetesObject[]>;
  /** Returns the evaluations of the manifests in these files, as creations in the present state of the cluster. */
  predict(paths: readonly string[]): Promise<ObjectEvaluation[]>;
  /** Returns the evaluations of the manifests in these files, as creations in a cluster that is assumed. */
  predictAssumed(paths: readonly string[]): Promise<ObjectEvaluation[]>;
  /** Returns the evaluations of manifests and reviews in a state, and the notes of the check. */
  predictIn(
    state: readonly object[],
    given: { manifests?: readonly object[]; reviews?: readonly object[] },
    isStrict?: boolean,
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
  {
    validate = "warn",
    ...options
  }: TestClusterOptions & { fill(admin: TestClusterClient): Promise<unknown>; validate?: FieldValidation },
): Promise<PredictedCluster> => {
  const binaries = await requireBinaries(minor);
  const folder = await mkdtemp(join(tmpdir(), "postern-predicted-"));
  const stops = [() => rm(folder, { recursive: true, force: true })];
  const stopAll = () => Promise.all(stops.map((stop) => stop()));
  const { defaultOn } = await listPlugins(binaries);
  const fill: NonNullable<TestClusterOptions["late"]>["fill"] = (as) => options.fill(as("admin"));
  let admin: TestClusterClient;
  try {
    const late = { enable: defaultOn, fill };
    const flags = ["--allow-privileged=true", ...(options.flags ?? [])];
    const cluster = await bootCluster(binaries, { ...options, flags, disable: defaultOn, late });
    stops.push(cluster.stop);
    admin = cluster.admin;
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
  const runCheck = async (
    files: Record<"paths" | "reviews" | "state", readonly string[]>,
    operation?: "CREATE",
    isStrict = true,
  ) => {
    const yaml = JSON.stringify({ rules: {}, clusters: { local: { kubernetes: minor } } });
    const check = await prepareManifestCheck({
      ...files,
      catalogue: [],
      cluster: chooseCluster(parseConfig(yaml, []), undefined),
      harden: false,
      isStrict,
      validate,
      old: [],
      webhooks: [],
      hosts: [],
      plugins: [],
      operation,
      namespace: "default",
      alsoPods: false,
      user: predictedUser,
      startKubernetes: startSharedKubernetes,
    });
    const evaluations = await Array.fromAsync(check.evaluations);
    assert.deepEqual(check.faults, []);
    return { evaluations, notes: [...check.notes] };
  };
  const predict = async (paths: readonly string[]): Promise<ObjectEvaluation[]> => {
    const state = [await writeManifests(await readLists(statePaths))];
    return (await runCheck({ paths, reviews: [], state }, "CREATE")).evaluations;
  };
  const predictAssumed = async (paths: readonly string[]): Promise<ObjectEvaluation[]> =>
    (await runCheck({ paths, reviews: [], state: [] }, "CREATE", false)).evaluations;
  const writeIfAny = async (items: readonly object[] = []) => (items.length > 0 ? [await writeManifests(items)] : []);
  const predictIn: PredictedCluster["predictIn"] = async (state, { manifests, reviews }, isStrict) => {
    const paths = await writeIfAny(manifests);
    return runCheck({ paths, reviews: await writeIfAny(reviews), state: await writeIfAny(state) }, undefined, isStrict);
  };
  return { admin, writeManifests, readLists, predict, predictAssumed, predictIn, stop: stopAll };
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

/** Returns the faults of an object that the API server refuses as invalid; undefined if it looks at none. */
const listFaults = (answer: TestClusterResponse): string[] | undefined => {
  const causes: Record<string, string>[] = Object(answer.body.details).causes ?? [];
  return isByAllocation(answer.body)
    ? undefined
    : causes.map(({ field, message = "" }) => `${field}: ${message.split("\n", 1)[0]}`);
};

/** Returns the faults for which check says that API validation refuses an object. */
const listPredictedFaults = ({ denials }: ObjectEvaluation["checked"]): string[] =>
  denials
    .filter(({ rule }) => rule === "API validation")
    .map(({ message }) => message.replace(/; \S[^;]* changed the object$/, ""));

/** Reports whether a fault of two lists is about the same part of an object. */
const haveCommonPart = (faults: readonly string[], others: readonly string[]): boolean => {
  const [fields, otherFields] = [faults, others].map((all) => all.map((fault) => fault.split(": ", 1)[0] ?? ""));
  return !!fields?.some((one) => otherFields?.some((other) => one.startsWith(other) || other.startsWith(one)));
};

const isByPolicy = (message: unknown): boolean => / denied request: /.test(String(message));

/**
 * Returns the API server's outcome and check's, reduced to the parts that can be compared. The API server validates an
 * object between both phases of admission; what validating plugins would say of an invalid one, it doesn't ask.
 */
const compareOutcomes = (
  answer: TestClusterResponse,
  { checked, after, stored, subject }: ObjectEvaluation,
  minor: string,
): [unknown, unknown] => {
  const { code, body, warnings } = answer;
  const random = createRandomNamePattern(Object(subject.manifest.object.metadata).generateName);
  const sortParts = (message: unknown) => sortLimits(String(message).replaceAll(random, "RANDOM"));
  // The order among policies is random in the API server.
  const denial =
    checked.denials.find(({ message }) => sortParts(message) === sortParts(body.message)) ?? checked.denials[0];
  // check says in its own words, with the field, why an object can't be read.
  if (code === 400) return [code, denial?.code];
  if (isByValidation(answer)) {
    const [theirs, ours] = [listFaults(answer), listPredictedFaults(checked)];
    // An emulated minor prints values as the newest one does, and the newest one may say more exactly what is wrong.
    if (theirs && minor !== newestKubernetes) return [true, haveCommonPart(theirs, ours)];
    return [theirs && [...new Set(theirs)].sort(), theirs && [...new Set(ours)].sort()];
  }
  // Go's words for a patch of a policy that makes an object unreadable; check looks at the policy's next mutation, too.
  if (code === 500 && /json: cannot unmarshal|strict decoding/.test(String(body.message)))
    return [true, denial !== undefined];
  // Of a plugin or a policy that check can't decide, the API server may show the refusal.
  if ((code === 403 || isByPolicy(body.message)) && checked.undecided.length > 0) return [true, denial !== undefined];
  if (code >= 300)
    return [
      { code, message: sortParts(body.message) },
      { code: denial?.code, message: sortParts(denial?.message) },
    ];
  const ours = checked.warnings.map(({ text }) => text);
  const isDeletion = body.kind === "Status" || Object(body.metadata).deletionTimestamp !== undefined;
  const [wanted, predicted] = isDeletion ? [] : [body, stored ?? after].map(dropServerFields);
  return [
    { object: wanted, warnings: warnings.filter(isOfPlugin).sort(), denied: undefined },
    { object: predicted, warnings: ours.filter(isOfPlugin).sort(), denied: denial?.message },
  ];
};

/**
 * Sorts what LimitRanger lists, which has the random order of Go's maps; and replaces the no-break space that the package
 * of protobuf puts into its errors in some programs.
 */
const sortLimits = (message: string): string =>
  message
    .replaceAll("\u00a0", " ")
    .replace(/(?<=is forbidden: \[)(?=m|\S+ max limit ).*(?=\]$)/, (parts) => parts.split(", ").sort().join());

/** Matches the end of a quoted name that an API server drew. */
const createRandomNamePattern = (generateName: string | undefined): RegExp =>
  new RegExp(`(?<="${RegExp.escape(generateName ?? "\0")})[a-z0-9]{5}(?=")`, "g");

/** Returns an object without what the API server sets by its clock, at random, or by what its storage has. */
const dropServerFields = (object: unknown): unknown => {
  const { uid, generateName } = Object(Object(object).metadata);
  const random = createRandomNamePattern(generateName);
  const text = JSON.stringify(object, (name, value) => (serverFields.includes(name) ? undefined : value));
  return text && JSON.parse(text.replaceAll(uid ?? "\0", "UID").replaceAll(random, "RANDOM"));
};
const serverFields = [
  "uid",
  "creationTimestamp",
  "resourceVersion",
  "generation",
  "managedFields",
  "timeAdded",
  "lastTransitionTime",
  "lastPhaseTransitionTime",
  "clusterIP",
  "clusterIPs",
  "ipFamilies",
  "ipFamilyPolicy",
  "nodePort",
  "healthCheckNodePort",
];

/** Returns values without the part of volume names that the ServiceAccount plugin draws by lot. */
const withoutRandomNames = <T>(values: T): T =>
  JSON.parse(JSON.stringify(values).replaceAll(/(?<=kube-api-access-)[a-z0-9]{5}/g, "…"));

const isOfPlugin = (warning: string) => /^(would violate PodSecurity|Validation failed for) /.test(warning);
