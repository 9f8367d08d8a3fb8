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

/** A test cluster with the plugins that are on by default, and functions that run check for this cluster. */
export interface PredictedCluster {
  admin: TestClusterClient;
  /** Writes manifests to a file and returns its path. */
  writeManifests(items: readonly object[]): Promise<string>;
  /** Reads the lists at these paths from the cluster, and returns their objects. */
  readLists(paths: readonly string[]): Promise<KubernetesObject[]>;
  /** Returns the evaluations of the manifests in these files, as creations in the present state of the cluster. */
  predict(paths: readonly string[]): Promise<ObjectEvaluation[]>;
  /** Returns the evaluations of these files' manifests, as creations in a cluster whose state is assumed by `check`. */
  predictAssumed(paths: readonly string[]): Promise<ObjectEvaluation[]>;
  /**
   * Returns the evaluations of manifests and reviews in a cluster with the objects of `state`, and the check's notes.
   * If `isStrict` is false, check assumes the rest of the cluster's state instead of being undecided.
   */
  predictIn(
    state: readonly object[],
    given: { manifests?: readonly object[]; reviews?: readonly object[] },
    isStrict?: boolean,
  ): Promise<{ evaluations: ObjectEvaluation[]; notes: string[] }>;
  stop(): Promise<unknown>;
}

/**
 * Boots a test cluster. `fill` creates objects before the plugins are turned on. `statePaths` are the paths of the
 * lists of objects that plugins read.
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

  let fileCount = 0;
  const writeManifests = async (items: readonly object[]): Promise<string> => {
    const file = join(folder, `${++fileCount}.json`);
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
  /** Writes objects to a file and returns its path in a list; without objects, the list is empty. */
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

/** The user who sends all compared requests. */
export const predictedUser = { username: "admin", groups: ["system:masters", "system:authenticated"] };

/** Reports whether the API server refused an object as invalid: it validates objects after the mutating admission. */
export const isByValidation = ({ code, body }: TestClusterResponse): boolean =>
  (code === 422 && !isByPolicy(body.message)) || isByAllocation(body);

/** Reports whether the API server could allocate no address for a Service. It allocates before it validates. */
const isByAllocation = ({ message }: TestClusterResponse["body"]): boolean =>
  /\bfailed to allocate\b/.test(String(message));

/**
 * Returns the faults that the API server reports for an invalid object;
 * undefined if it couldn't allocate an address.
 */
const listFaults = ({ body }: TestClusterResponse): string[] | undefined => {
  if (isByAllocation(body)) return undefined;
  const causes: Record<string, string>[] = Object(body.details).causes ?? [];
  return causes.map(({ field, message = "" }) => `${field}: ${message.split("\n", 1)[0]}`);
};

/** Returns the faults of an object that check reports in the name of API validation. */
const listPredictedFaults = ({ denials }: ObjectEvaluation["checked"]): string[] =>
  denials
    .filter(({ rule }) => rule === "API validation")
    .map(({ message }) => message.replace(/; \S[^;]* changed the object$/, ""));

/** Reports whether the lists have faults of a common field, or of a field and of a part of this field (`spec.type`). */
const haveCommonPart = (faults: readonly string[], otherFaults: readonly string[]): boolean => {
  const getField = (fault: string) => fault.split(": ", 1)[0] ?? "";
  const otherFields = otherFaults.map(getField);
  return faults
    .map(getField)
    .some((field) => otherFields.some((other) => field.startsWith(other) || other.startsWith(field)));
};

const isByPolicy = (message: unknown): boolean => / denied request: /.test(String(message));

/**
 * Returns the API server's outcome and check's outcome, reduced to the parts that can be compared. The API server
 * validates an object before it calls validating plugins, so it doesn't call them for an invalid object.
 */
const compareOutcomes = (
  answer: TestClusterResponse,
  { checked, after, stored, subject }: ObjectEvaluation,
  minor: string,
): [wanted: unknown, actual: unknown] => {
  const { code, body, warnings } = answer;
  const random = createRandomNamePattern(Object(subject.manifest.object.metadata).generateName);
  const sortParts = (message: unknown) => sortLimits(String(message).replaceAll(random, "RANDOM"));
  // If several policies refuse an object, the API server's message is that of any of them.
  const denial =
    checked.denials.find(({ message }) => sortParts(message) === sortParts(body.message)) ?? checked.denials[0];
  // For an object that can't be read, check's message differs from the API server's: only the codes are compared.
  if (code === 400) return [code, denial?.code];
  if (isByValidation(answer)) {
    const [faults, predictedFaults] = [listFaults(answer), listPredictedFaults(checked)];
    // For an older minor, check prints values as the newest minor does, and may name a field more exactly.
    if (faults && minor !== newestKubernetes) return [true, haveCommonPart(faults, predictedFaults)];
    // If the API server could allocate no address, `faults` is undefined, and so are both parts: nothing is compared.
    return [faults && [...new Set(faults)].sort(), faults && [...new Set(predictedFaults)].sort()];
  }
  // A policy's patch made the object unreadable. The API server's message is from Go, so check's text isn't compared.
  if (code === 500 && /json: cannot unmarshal|strict decoding/.test(String(body.message)))
    return [true, denial !== undefined];
  // The refusal may come from a plugin or policy about which check is undecided. Then any denial by check is enough.
  if ((code === 403 || isByPolicy(body.message)) && checked.undecided.length > 0) return [true, denial !== undefined];
  if (code >= 300)
    return [
      { code, message: sortParts(body.message) },
      { code: denial?.code, message: sortParts(denial?.message) },
    ];
  const predictedWarnings = checked.warnings.map(({ text }) => text);
  const isDeletion = body.kind === "Status" || Object(body.metadata).deletionTimestamp !== undefined;
  // `stored` is `after` as an API server would store it; absent if Kubernetes' own handlers weren't called.
  const [object, predictedObject] = isDeletion ? [] : [body, stored ?? after].map(dropServerFields);
  return [
    { object, warnings: warnings.filter(isOfPlugin).sort(), denied: undefined },
    { object: predictedObject, warnings: predictedWarnings.filter(isOfPlugin).sort(), denied: denial?.message },
  ];
};

/**
 * Sorts the violations that LimitRanger lists in the random order of Go's maps. Each begins with `maximum`, `minimum`
 * or, for instance, `cpu max limit to request ratio`. Also replaces the no-break space that Go's protobuf package puts
 * into its errors in some programs.
 */
const sortLimits = (message: string): string =>
  message
    .replaceAll("\u00a0", " ")
    .replace(/(?<=is forbidden: \[)(?=m|\S+ max limit ).*(?=\]$)/, (parts) => parts.split(", ").sort().join(", "));

/** Matches the random end of a generated name in quotes: `x7k2p` in `"web-x7k2p"`. */
const createRandomNamePattern = (generateName: string | undefined): RegExp =>
  new RegExp(`(?<="${RegExp.escape(generateName ?? "\0")})[a-z0-9]{5}(?=")`, "g");

/** Returns an object without the fields that the API server sets from its clock or its storage, or at random. */
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

/**
 * Replaces the random end of the volume names that the ServiceAccount plugin creates, such as kube-api-access-x7k2p.
 */
const withoutRandomNames = <T>(values: T): T =>
  JSON.parse(JSON.stringify(values).replaceAll(/(?<=kube-api-access-)[a-z0-9]{5}/g, "…"));

const isOfPlugin = (warning: string) => /^(would violate PodSecurity|Validation failed for) /.test(warning);
