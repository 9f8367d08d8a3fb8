import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { KubernetesObject } from "#lib/review.ts";
import { fillDefaults, prepareForStorage } from "../../infra/apiserver/defaults/defaults.ts";
import { prepareManifestCheck } from "../../infra/check/check.ts";
import type { ObjectEvaluation } from "../../infra/check/evaluation/evaluation.ts";
import { chooseCluster } from "../../infra/config/config.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { formatAnswerDiff } from "../../infra/parity/compare.ts";
import { listPlugins, requireBinaries } from "../../infra/parity/control-plane/binaries.ts";
import type { TestClusterClient, TestClusterResponse } from "../../infra/parity/control-plane/client.ts";
import { bootCluster, type TestClusterOptions } from "../../infra/parity/control-plane/cluster.ts";
import { openScriptedWebhookEndpoints } from "../../infra/parity/scripted-endpoints.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { createObserver, registerWitness, type Seen } from "./witness.ts";

/** A test cluster with the plugins that are on by default, and what check says of manifests for it. */
export interface PredictedCluster {
  admin: TestClusterClient;
  /** The objects that the API server got, as its mutating plugins left them. */
  seen: Seen;
  /** Writes manifests to a file and returns its path. */
  writeManifests(items: readonly object[]): Promise<string>;
  /** Returns the evaluations of the manifests in these files, as creations in the present state of the cluster. */
  predict(paths: readonly string[]): Promise<ObjectEvaluation[]>;
  stop(): Promise<unknown>;
}

/**
 * Boots a test cluster; `fill` creates objects while plugins are off. `state` has the paths of the objects that plugins
 * read.
 */
export const bootPredictedCluster = async (
  minor: string,
  state: readonly string[],
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
  const readState = async (): Promise<object[]> => {
    const lists = await Promise.all(state.map((path) => admin({ method: "GET", path })));
    return lists.flatMap(({ body }) => {
      // The items of a list have no kind and apiVersion.
      const type = { apiVersion: body.apiVersion, kind: String(body.kind).replace(/List$/, "") };
      return (Array.isArray(body.items) ? body.items : []).map((item) => ({ ...type, ...item }));
    });
  };
  const predict = async (paths: readonly string[]): Promise<ObjectEvaluation[]> => {
    const yaml = JSON.stringify({ rules: {}, clusters: { local: { kubernetes: minor } } });
    const check = await prepareManifestCheck({
      ...{ catalogue: [], cluster: chooseCluster(parseConfig(yaml, []), undefined), harden: false },
      paths,
      state: [await writeManifests(await readState())],
      ...{ reviews: [], old: [], webhooks: [], hosts: [], plugins: [] },
      ...{ operation: "CREATE", namespace: "default", alsoPods: false },
      user: { username: "admin", groups: ["system:masters", "system:authenticated"] },
    });
    const evaluations = await Array.fromAsync(check.evaluations);
    assert.deepEqual(check.faults, []);
    return evaluations;
  };
  return { admin, seen, writeManifests, predict, stop: stopAll };
};

/** Returns how check's outcome differs from the API server's, as a text; undefined if they are equal. */
export const describeDifference = (...compared: Parameters<typeof compareOutcomes>): string | undefined => {
  const [wanted, actual] = withoutRandomNames(compareOutcomes(...compared));
  return isDeepStrictEqual(actual, wanted) ? undefined : formatAnswerDiff(toAnswer(wanted), toAnswer(actual));
};

const toAnswer = (body: unknown) => ({ code: 0, warnings: [], body });

/**
 * Returns the API server's outcome and check's, reduced to the parts that can be compared. The API server validates an
 * object between both phases of admission; what validating plugins would say of an invalid one, it doesn't ask.
 */
const compareOutcomes = (
  { code, body, warnings }: TestClusterResponse,
  last: Record<string, unknown> | undefined,
  { checked, after }: ObjectEvaluation,
  minor: string,
): [unknown, unknown] => {
  const { managedFields: _, ...metadata } = Object(last?.metadata);
  // The witness gets an object before the API server prepares it for storage, and before it is read again.
  const stored = last && prepareForStorage({ ...last, metadata } as KubernetesObject, minor);
  const object = stored && fillDefaults(stored, minor).object;
  // The order among policies is random in the API server.
  const denial = checked.denials.find(({ message }) => message === body.message) ?? checked.denials[0];
  // check says in its own words, with the field, why an object can't be read.
  if (code === 400) return [code, denial?.code];
  if (code === 422 && !/ denied request: /.test(String(body.message))) return [object, last && (after ?? undefined)];
  // Of a policy that check can't decide, the API server may show the refusal.
  if (code === 422 && checked.undecided.length > 0) return [true, denial !== undefined];
  if (code !== 201)
    return [
      { code, message: body.message },
      { code: denial?.code, message: denial?.message },
    ];
  const ours = checked.warnings.map(({ text }) => text);
  return [
    { object, warnings: warnings.filter(isOfPlugin).sort(), denied: undefined },
    { object: after, warnings: ours.filter(isOfPlugin).sort(), denied: denial?.message },
  ];
};

/** Returns values without the part of volume names that the ServiceAccount plugin draws by lot. */
const withoutRandomNames = <T>(values: T): T =>
  JSON.parse(JSON.stringify(values).replaceAll(/(?<=kube-api-access-)[a-z0-9]{5}/g, "…"));

const isOfPlugin = (warning: string) => /^(would violate PodSecurity|Validation failed for) /.test(warning);
