import { setTimeout as wait } from "node:timers/promises";
import { toApiPath } from "#lib/objects/api-version.ts";
import type { RecordedCapabilityAnswers } from "#lib/recording/recorded-answers.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { getCasePhase } from "../../../infra/catalogue/cases.ts";
import type { CatalogueRule } from "../../../infra/catalogue/registry.ts";
import {
  getCollectionPath,
  getObjectApiPath,
  type TestClusterClient,
  type TestClusterResponse,
} from "../../control-plane/client.ts";
import { deleteWithFinalizers } from "../sequence-sender.ts";
import { addApiRequiredFields } from "./case-request.ts";

// Creates the objects that a case needs in an API server. Namespaced objects are created in namespaces that only this
// case uses; cluster-scoped objects exist only while the case is sent.

type RecordedObject = NonNullable<RecordedCapabilityAnswers["objects"]>[number];

const listPresentObjects = ({ needs }: Case): RecordedObject[] => needs?.objects ?? [];
const isNamespace = ({ kind, apiVersion }: KubernetesObject) => kind === "Namespace" && apiVersion === "v1";

/**
 * Returns a case with its namespaces renamed, so that no other case uses them. A case about namespaces themselves is
 * not changed, nor is a case with an invalid name of a namespace.
 */
export const renameNamespaces = (entry: Case, replacementNamespace: string): Case => {
  const given = entry[getCasePhase(entry)];
  const caseNamespace = entry.namespace ?? given?.metadata?.namespace ?? "default";
  if (entry.resource === "namespaces" || /[^a-z\d-]/.test(caseNamespace)) return entry;
  const rename = (name: string) => (name === caseNamespace ? replacementNamespace : `${replacementNamespace}-${name}`);
  const renameIn = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(renameIn);
    if (typeof value !== "object" || value === null) return value;
    const members = Object.entries(value).map(([key, inner]) => [
      key,
      key === "namespace" && typeof inner === "string" ? rename(inner) : renameIn(inner),
    ]);
    return isNamespace(value)
      ? { ...value, metadata: { ...Object(value).metadata, name: rename(Object(value).metadata.name) } }
      : Object.fromEntries(members);
  };
  const { mutate, validate, oldObject, needs } = entry;
  const members = Object.entries({ mutate, validate, oldObject, needs }).filter(([, value]) => value !== undefined);
  return { ...entry, ...Object(renameIn(Object.fromEntries(members))), namespace: replacementNamespace };
};

/** Returns the namespaces of a case and of the objects that it needs. */
export const listCaseNamespaces = (entry: Case): string[] =>
  [
    ...new Set([
      ...(entry.namespace === undefined ? [] : [entry.namespace]),
      ...listPresentObjects(entry).flatMap((one) => [
        one.metadata.namespace,
        isNamespace(one) ? one.metadata.name : undefined,
      ]),
    ]),
  ].filter((name) => name !== undefined);

/** Replaces the uid of the case's old object by that of the stored object, wherever a value contains it. */
export const insertStoredUid = <T>(value: T, oldObject: KubernetesObject | undefined, stored: object): T => {
  const [caseUid, storedUid] = [oldObject, stored].map((object) => Object(Object(object).metadata).uid);
  if (typeof caseUid !== "string" || typeof storedUid !== "string") return value;
  return JSON.parse(JSON.stringify(value).replaceAll(JSON.stringify(caseUid), JSON.stringify(storedUid)));
};

/**
 * The objects that were created for a case. `lacks` describes the objects that could not be created, and other
 * differences between the test cluster and the cluster that the case describes. `deleteAll` deletes the created
 * objects.
 */
export interface CreatedCaseObjects {
  lacks: string[];
  deleteAll(): Promise<void>;
}

/** Creates the objects that a case needs, and waits until the plugins, which watch the cluster, have seen them. */
export const createNeededObjects = async (
  admin: TestClusterClient,
  { rule }: CatalogueRule,
  entry: Case,
): Promise<CreatedCaseObjects> => {
  const reads = (resource: string) => Object.values(rule.needs ?? {}).some(({ kind }) => kind?.resource === resource);
  const lacks: string[] = [];
  const createdPaths: string[] = [];
  const send = async (call: Parameters<TestClusterClient>[0], what: string): Promise<TestClusterResponse> => {
    const answer = await admin(call);
    if (answer.code >= 300 && answer.code !== 409)
      lacks.push(`the case needs ${what}, which the API server refuses: ${answer.body.message ?? answer.body.text}`);
    return answer;
  };

  for (const home of listCaseNamespaces(entry)) {
    const recorded = listPresentObjects(entry).find((one) => isNamespace(one) && one.metadata.name === home);
    // If the case doesn't list this namespace and its rule reads namespaces, then the namespace must not exist.
    if (recorded === undefined && reads("namespaces")) await deleteWithFinalizers(`${namespaces}/${home}`, () => admin);
    else await ensureNamespace(admin, home, recorded);
    // Pods need the ServiceAccount `default`, so it is created. If the rule reads ServiceAccounts, it isn't: then only
    // those that the case lists must exist.
    const account = { path: `${namespaces}/${home}/serviceaccounts`, body: { metadata: { name: "default" } } };
    if (!reads("serviceaccounts")) await admin({ method: "POST", ...account });
    if (isTerminating(recorded)) await admin({ method: "DELETE", path: `${namespaces}/${home}` });
  }
  lacks.push(...(await compareRightsAndResources(admin, entry)));

  let last = "";
  for (const one of listPresentObjects(entry).toSorted(compareForCreation)) {
    if (isNamespace(one)) continue;
    const { creationTimestamp, deletionTimestamp } = Object(one.metadata);
    // Stored creation times are whole seconds. If the recorded times of this object and the previous one differ, this
    // object is created in the next second, so that the stored times differ, too.
    if (creationTimestamp !== undefined && creationTimestamp !== last) await wait(1000 - (Date.now() % 1000));
    last = creationTimestamp ?? last;
    const { namespace } = one.metadata;
    const [collection, path] = [getCollectionPath(one), getObjectApiPath(one)];
    const finalizers = [...(Object(one.metadata).finalizers ?? []), ...(deletionTimestamp ? ["example.com/keep"] : [])];
    const { status, ...rest }: RecordedObject & { status?: object } = one;
    const body = addApiRequiredFields(
      { ...rest, metadata: { ...one.metadata, ...(finalizers.length > 0 && { finalizers }) } },
      namespace,
    );
    const what = `${one.kind} "${one.metadata.name}"`;
    const { code } = await send({ method: "POST", path: collection, body }, what);
    if (code >= 300) continue;
    createdPaths.push(path);
    const contentType = "application/merge-patch+json";
    if (status) await send({ method: "PATCH", path: `${path}/status`, body: { status }, contentType }, what);
    if (deletionTimestamp) await send({ method: "DELETE", path }, what);
  }
  if (rule.needs) await wait(50);
  const deleteAll = async () => {
    await Promise.all(createdPaths.map((path) => deleteWithFinalizers(path, () => admin)));
  };
  return { lacks, deleteAll };
};

const namespaces = "/api/v1/namespaces";
const isTerminating = (one: object | undefined) => Object(Object(one).status).phase === "Terminating";

/** Creates a namespace with the given labels and annotations, or adds these to the existing one. */
export const ensureNamespace = async (
  admin: TestClusterClient,
  name: string,
  recordedNamespace?: RecordedObject,
): Promise<void> => {
  const { labels, annotations } = Object(recordedNamespace?.metadata);
  const metadata = { name, ...(labels && { labels }), ...(annotations && { annotations }) };
  const { code } = await admin({ method: "POST", path: namespaces, body: { metadata } });
  const contentType = "application/merge-patch+json";
  if (code === 409 && recordedNamespace)
    await admin({ method: "PATCH", path: `${namespaces}/${name}`, body: { metadata }, contentType });
};

/**
 * Sends the API server the questions whose answers a case records, such as access reviews and discovery, and describes
 * the answers that differ from those in the case.
 */
const compareRightsAndResources = async (admin: TestClusterClient, { needs = {}, user }: Case): Promise<string[]> => {
  const { refused = [], may = [], discovery = {} } = needs;
  const reviewed = may.map(async ({ user: other, allowed, reason: _, evaluationError: __, ...resourceAttributes }) => {
    const { username, groups } = other ?? user ?? { username: "jane" };
    const path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    const spec = { user: username, groups, resourceAttributes };
    const { body } = await admin({ method: "POST", path, body: { spec } });
    const { verb, resource } = resourceAttributes;
    const places = allowed ? ["case", "test"] : ["test", "case"];
    return Object(body.status).allowed === allowed
      ? []
      : [`${username} may ${verb} ${resource ?? "this"} in the ${places[0]}, but not in the ${places[1]}`];
  });
  const listed = Object.entries(discovery).map(async ([groupVersion, resources]) => {
    const { resources: served = [] } = (await admin({ method: "GET", path: toApiPath(groupVersion) })).body;
    const names = Array.isArray(served) ? served.map(({ name }) => name) : [];
    const missing = resources.filter(({ resource }) => !names.includes(resource));
    const added = names.filter((name) => !name.includes("/") && !resources.some(({ resource }) => resource === name));
    return missing.length + added.length > 0 ? [`${groupVersion} has other resources here`] : [];
  });
  // These objects must be refused here, too. `admin` may create everything, so the reason can only be the name (422).
  const refusals = refused.map(async ({ resource, name }) => {
    const path = `/api/v1/${resource}?dryRun=All`;
    const { code } = await admin({ method: "POST", path, body: { metadata: { name } } });
    return code === 422 ? [] : [`${resource} "${name}" can be created in the test, but not in the case`];
  });
  return (await Promise.all([...refusals, ...reviewed, ...listed])).flat();
};

/**
 * Puts a case's objects into the order in which the test creates them: by their recorded creation times, else by name.
 * Plugins mostly read objects in the order of creation, rules in the order of names: without times, both are the same.
 */
const compareForCreation = (one: RecordedObject, other: RecordedObject) => {
  const [first = "", second = ""] = [one, other].map(({ metadata }) => {
    return `${Object(metadata).creationTimestamp ?? ""} ${metadata.name}`;
  });
  return first < second ? -1 : first > second ? 1 : 0;
};
