import { setTimeout as wait } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { toMap } from "#lib/json.ts";
import type { Phase } from "#lib/rule.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { runInParallel } from "../cli/progress.ts";
import { callThroughRelay } from "../webhooks/configurations.ts";
import { managedByLabel } from "../webhooks/labels.ts";
import { policyNameAnnotation } from "../webhooks/native-policies.ts";
import {
  type ClusterApi,
  type DeployedKind,
  type DeployedObject,
  describeObject,
  isDeployedObject,
  type ObjectReference,
  toReference,
} from "./api.ts";
import {
  buildMissingDifferences,
  buildUnwantedDifferences,
  compareObjects,
  type DeployedObjectDifference,
  toNamedWebhookEntries,
} from "./drift.ts";
import { awaitPolicies, type PolicyKind } from "./policy-probe.ts";

/** A change of one deployed object in the cluster. */
export interface DeployedObjectChange {
  did: "made" | "changed" | "removed";
  kind: DeployedKind;
  name: string;
}

/** The number of objects that are read or written in parallel. */
const atOnce = 5;
export const webhookKinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] as const;
/**
 * The order in which objects are created. Roles come before webhook configurations: called rules need them. Kinds
 * that mutate come before kinds that validate, which may refuse objects that were not mutated. Objects are deleted in
 * the opposite order.
 */
const creationOrder: DeployedKind[] = [
  "ServiceAccount",
  "Secret",
  "ClusterRole",
  "ClusterRoleBinding",
  "MutatingAdmissionPolicy",
  "MutatingAdmissionPolicyBinding",
  "MutatingWebhookConfiguration",
  "ValidatingAdmissionPolicy",
  "ValidatingAdmissionPolicyBinding",
  "ValidatingWebhookConfiguration",
];
const isWebhookKind = (kind: DeployedKind) => webhookKinds.some((webhookKind) => webhookKind === kind);
const policyKinds = creationOrder.filter((kind) => kind.includes("AdmissionPolicy"));
export const isPolicyKind = (kind: DeployedKind) => policyKinds.includes(kind);
const isRbacKind = (kind: DeployedKind) => !isWebhookKind(kind) && !isPolicyKind(kind);
const roleKinds = ["ClusterRoleBinding", "ClusterRole"] as const;

/**
 * Returns all differences between the objects in the cluster and the `wanted` ones, also for objects of this deployment
 * that are not wanted any more. Changes nothing.
 */
export const findDifferences = async (
  api: ClusterApi,
  wanted: readonly object[],
  name: string,
): Promise<DeployedObjectDifference[]> => {
  const all = sortObjects(wanted);
  const found = (await runInParallel(atOnce, all, (object) => planObject(api, object))).flatMap(
    ({ differences }): DeployedObjectDifference[] => differences,
  );
  for (const live of await listUnwanted(api, all, name)) found.push(...buildUnwantedDifferences(live));
  return found;
};

/**
 * Applies the wanted objects, deletes objects that are not wanted any more, and returns the changes. A validating entry
 * is added after the mutating entry of its rule, and deleted before it, because it may refuse objects that were not
 * mutated. If a policy moves from its webhook entry to the API server or back, it is in effect in the new place before
 * it is deleted in the old one.
 */
export const applyWantedObjectsToCluster = async (
  api: ClusterApi,
  wanted: readonly object[],
  name: string,
): Promise<DeployedObjectChange[]> => {
  const all = sortObjects(wanted);
  const changes = await applyRbacObjects(api, all);
  changes.push(...(await deleteRetiredEntries(api, all, name)));
  // The time of the last change. At first it is now, because an interrupted update may have just changed something.
  let changedAt = Date.now();
  /** Waits until all API servers of the cluster use the last change. */
  const waitForAllServers = () => wait(Math.max(0, changedAt + settleMilliseconds - Date.now()));
  const unconfirmedKinds = new Set<PolicyKind>();
  const findPolicyKind = (kind: DeployedKind) => {
    const policyKind = kind.replace("WebhookConfiguration", "AdmissionPolicy") as PolicyKind;
    return all.some((object) => object.kind === policyKind) ? policyKind : undefined;
  };
  /**
   * Waits until new policies of a kind have an effect in the API server that answers this command. If they have none,
   * deletes them and throws: a later deployment then finds that they are missing.
   */
  const awaitEffect = async (kind: PolicyKind) => {
    await awaitPolicies(api, kind, name).catch(async (error) => {
      const created = changes.filter((change) => change.did === "made" && change.kind.startsWith(kind));
      for (const change of created.reverse()) await api.remove(change);
      throw error;
    });
    unconfirmedKinds.delete(kind);
  };
  for (const object of all.filter(({ kind }) => !isRbacKind(kind))) {
    const isFirstOfTwo = object.kind === "MutatingWebhookConfiguration" && (await addsTwoEntriesOfRule(api, all, name));
    const policyKind = isWebhookKind(object.kind) ? findPolicyKind(object.kind) : undefined;
    if (policyKind && (await losesEntries(api, object))) await awaitEffect(policyKind).then(waitForAllServers);
    const change = await applyObject(api, object);
    if (change === undefined) continue;
    changes.push(change);
    changedAt = Date.now();
    // API servers must call the new mutating entries before a validating entry of the same rule exists. They watch
    // webhook configurations, so this wait is shorter than that for policies, which they read only once a second.
    if (isFirstOfTwo) await wait(noticeMilliseconds);
    if (isPolicyKind(object.kind)) unconfirmedKinds.add(object.kind.replace(/Binding$/, "") as PolicyKind);
  }
  const unwanted = await listUnwanted(api, all, name);
  for (const { kind } of unwanted.filter((object) => isWebhookKind(object.kind))) {
    const policyKind = findPolicyKind(kind);
    if (policyKind) await awaitEffect(policyKind).then(waitForAllServers);
  }
  for (const kind of unconfirmedKinds) await awaitEffect(kind);
  if (unwanted.some(({ kind }) => isPolicyKind(kind))) await waitForAllServers();
  for (const live of unwanted) changes.push(...(await deleteObject(api, live)));
  return mergeChanges(changes);
};

/**
 * Milliseconds until all API servers of a cluster apply a new policy or call a new entry. An API server looks for
 * changed policies once a second, and may then have to read the parameters of a new kind.
 */
const settleMilliseconds = 5000;

/** Reports whether an update removes entries of a webhook configuration. */
const losesEntries = async (api: ClusterApi, wanted: DeployedObject): Promise<boolean> => {
  const kept = listEntryNames(wanted);
  return listEntryNames(await api.get(toReference(wanted))).some((entry) => !kept.includes(entry));
};

/** Milliseconds that API servers may take until they use a changed webhook configuration. */
const noticeMilliseconds = 300;

/**
 * Deletes all validating entries that aren't wanted any more if one of their rules loses its mutating entry, too. The
 * mutating entries are deleted later: a rule must not validate objects that it doesn't mutate any more.
 */
const deleteRetiredEntries = async (
  api: ClusterApi,
  all: DeployedObject[],
  name: string,
): Promise<DeployedObjectChange[]> => {
  const [mutating, validating] = await readConfigurations(api, name);
  if (validating === undefined || !isOurs(validating)) return [];
  const losesEntry = (present: DeployedObject | undefined, entryName: string) =>
    listEntryNames(present).includes(entryName) &&
    !listEntryNames(all.find(({ kind }) => kind === present?.kind)).includes(entryName);
  const retired = toNamedWebhookEntries(validating.webhooks).filter((entry) => losesEntry(validating, entry.name));
  if (!retired.some((entry) => losesEntry(mutating, entry.name))) return [];
  const webhooks = toNamedWebhookEntries(validating.webhooks).filter((entry) => !retired.includes(entry));
  // `replace` returns undefined if another client has changed the configuration in the meantime. A later step then
  // deletes the entries.
  if ((await api.replace({ ...validating, webhooks })) === undefined) return [];
  await wait(noticeMilliseconds);
  return [{ did: "changed", kind: validating.kind, name }];
};

/** Reports whether a rule without entries gets two: then, the caller waits between the mutating and validating one. */
const addsTwoEntriesOfRule = async (api: ClusterApi, wanted: DeployedObject[], configurationName: string) => {
  const presentNames = (await readConfigurations(api, configurationName)).map(listEntryNames);
  const [mutating = [], validating = []] = listEntryNamesByKind(wanted);
  return validating.some((entry) => mutating.includes(entry) && !presentNames.some((names) => names.includes(entry)));
};

/** Returns the mutating and the validating webhook configuration of a name, each undefined if it doesn't exist. */
export const readConfigurations = async (api: ClusterApi, name: string): Promise<(DeployedObject | undefined)[]> => {
  const [mutating, validating] = webhookKinds;
  return [await api.get({ kind: mutating, name }), await api.get({ kind: validating, name })];
};

const listEntryNames = (configuration: DeployedObject | undefined): string[] =>
  toNamedWebhookEntries(configuration?.webhooks).map(({ name }) => name);

const listEntryNamesByKind = (all: DeployedObject[]): string[][] =>
  webhookKinds.map((kind) => listEntryNames(all.find((object) => object.kind === kind)));

/** Keeps one change for each object: an object that was made and then changed counts as made. */
const mergeChanges = (changes: DeployedObjectChange[]): DeployedObjectChange[] => {
  const found = new Map<string, DeployedObjectChange>();
  for (const change of changes) {
    const key = `${change.kind} ${change.name}`;
    const before = found.get(key);
    found.set(key, before?.did === "made" ? before : change);
  }
  return [...found.values()];
};

/** Applies the roles, bindings and accounts among the wanted objects, kind by kind. */
export const applyRbacObjects = async (api: ClusterApi, wanted: readonly object[]): Promise<DeployedObjectChange[]> => {
  const changes: (DeployedObjectChange | undefined)[] = [];
  const objects = Map.groupBy(
    sortObjects(wanted).filter(({ kind }) => isRbacKind(kind)),
    ({ kind }) => kind,
  );
  for (const ofKind of objects.values())
    changes.push(...(await runInParallel(atOnce, ofKind, (object) => applyObject(api, object))));
  return changes.filter((change) => change !== undefined);
};

/** Deletes all objects of a deployment. `configurationName` is the name of its webhook configurations. */
export const deletePosternObjects = async (
  api: ClusterApi,
  configurationName: string,
): Promise<DeployedObjectChange[]> => {
  const changes: DeployedObjectChange[] = [];
  const all = await listDeployed(api, configurationName);
  const [mutating = [], validating = []] = listEntryNamesByKind(all);
  for (const live of all) {
    changes.push(...(await deleteObject(api, live)));
    // API servers must stop calling the validating entries before the mutating entries of the same rules are deleted.
    const mustWait =
      live.kind === "ValidatingWebhookConfiguration" && validating.some((entry) => mutating.includes(entry));
    if (mustWait) await wait(noticeMilliseconds);
  }
  for (const live of await findUnusedAccount(api, configurationName)) changes.push(...(await deleteObject(api, live)));
  return changes;
};

/** How an object in the cluster becomes the wanted one. */
interface ObjectPlan {
  /** The object in the cluster; undefined if it doesn't exist. */
  live: DeployedObject | undefined;
  differences: DeployedObjectDifference[];
  /** The object to write. */
  next: DeployedObject;
  /** True if the object must be deleted first, because the API server would refuse the change. */
  mustBeRecreated: boolean;
}

const maxAttempts = 5;

/** Compares an object in the cluster with the wanted one. A dry run adds the API server's defaults to the latter. */
const planObject = async (api: ClusterApi, wanted: DeployedObject): Promise<ObjectPlan> => {
  for (let attempt = 1; attempt <= maxAttempts; attempt++) {
    const live = await api.get(toReference(wanted));
    if (live === undefined)
      return { live, differences: buildMissingDifferences(wanted), next: wanted, mustBeRecreated: false };
    const next = mergeLiveFields(live, wanted);
    if (mustBeRecreated(live, wanted))
      return { live, differences: compareObjects(live, next), next: wanted, mustBeRecreated: true };
    const expected = await api.replace(next, { dryRun: true });
    if (expected === undefined) continue;
    return { live, differences: compareObjects(live, expected), next, mustBeRecreated: false };
  }
  throw buildBusyComplaint(api, wanted);
};

/** Makes an object in the cluster equal to the wanted one. Returns undefined if it is equal already. */
const applyObject = async (api: ClusterApi, wanted: DeployedObject): Promise<DeployedObjectChange | undefined> => {
  const { kind, metadata } = wanted;
  for (let attempt = 1; attempt <= maxAttempts; attempt++) {
    const { live, differences, next, mustBeRecreated } = await planObject(api, wanted);
    if (differences.length === 0) return undefined;
    if (mustBeRecreated) await deleteObject(api, wanted);
    // An existing object is replaced, as server-side apply would keep what other clients added, such as an entry.
    const isDone = live && !mustBeRecreated ? await api.replace(next) : await api.apply(next);
    if (isDone) return { did: live ? "changed" : "made", kind, name: metadata.name };
  }
  throw buildBusyComplaint(api, wanted);
};

const buildBusyComplaint = ({ cluster }: ClusterApi, object: DeployedObject) =>
  new Complaint(
    `cluster ${cluster}: another client is changing the ${describeObject(toReference(object))} at the same time`,
    1,
  );

/** Returns the wanted object, with the labels, annotations and data that others have added in the cluster. */
const mergeLiveFields = (live: DeployedObject, wanted: DeployedObject): DeployedObject => {
  const controllerFields = wanted.kind === "Secret" || wanted.kind === "ServiceAccount" ? live : {};
  // The API server itself keeps managedFields, so they are not written.
  const { managedFields: _, ...metadata }: DeployedObject["metadata"] & { managedFields?: unknown } = live.metadata;
  return {
    ...controllerFields,
    ...wanted,
    metadata: {
      ...metadata,
      labels: { ...metadata.labels, ...wanted.metadata.labels },
      annotations: { ...metadata.annotations, ...wanted.metadata.annotations },
    },
  };
};

/** Reports whether an object must be created again, because a binding's roleRef and a Secret's type are immutable. */
const mustBeRecreated = (live: DeployedObject, wanted: DeployedObject) =>
  !isDeepStrictEqual(live.roleRef, wanted.roleRef) || (wanted.kind === "Secret" && live.type !== wanted.type);

/** Returns all objects of a deployment in a cluster, in the order in which to delete them. */
const listDeployed = (api: ClusterApi, name: string) => listUnwanted(api, [], name);

/** Returns the objects of a deployment in a cluster that aren't wanted, in the order in which to delete them. */
const listUnwanted = async (api: ClusterApi, wanted: DeployedObject[], name: string): Promise<DeployedObject[]> => {
  const isWanted = ({ kind, metadata }: DeployedObject) =>
    wanted.some((object) => object.kind === kind && object.metadata.name === metadata.name);
  const configurations = await readConfigurations(api, name);
  const roles = await Promise.all(roleKinds.map((kind) => api.list(kind)));
  const deployed = [
    ...configurations.filter((configuration) => configuration !== undefined).filter(isOurs),
    ...(await listOwnPolicies(api, name)),
    ...roles.flat().filter((object) => isFromPostern(object) && object.metadata.name.startsWith(`${name}:`)),
  ];
  return sortObjects(deployed.filter((object) => !isWanted(object))).reverse();
};

/** Returns the policies and bindings of a deployment. They are called NAME.POLICY, with POLICY in an annotation. */
export const listOwnPolicies = async (api: ClusterApi, name: string): Promise<DeployedObject[]> => {
  const found = await Promise.all(policyKinds.map((kind) => api.list(kind, { isOptional: true })));
  return found
    .flat()
    .filter(({ metadata }) => metadata.name === `${name}.${metadata.annotations?.[policyNameAnnotation]}`);
};

/** Reports whether an object has the label of objects that Postern has created. */
export const isFromPostern = ({ metadata }: DeployedObject) => metadata.labels?.[managedByLabel] === "postern";

/** Reports whether Postern has created a webhook configuration: by its label, or by the names of all entries. */
const isOurs = (configuration: DeployedObject) => {
  const entries = toNamedWebhookEntries(configuration.webhooks);
  return isFromPostern(configuration) || (entries.length > 0 && entries.every(({ name }) => posternDomain.test(name)));
};

/** Returns the reference to the functions' ServiceAccount. */
const toAccountReference = (name: string) => ({ kind: "ServiceAccount", name, namespace: "kube-system" }) as const;

/** Returns the functions' ServiceAccount and its Secret, or nothing if a ClusterRoleBinding still names the account. */
const findUnusedAccount = async (api: ClusterApi, name: string): Promise<DeployedObject[]> => {
  const account = toAccountReference(name);
  const secret = { ...account, kind: "Secret", name: `${name}-token` } as const;
  const found = await Promise.all([secret, account].map(api.get));
  const created = found.filter((object) => object !== undefined).filter(isFromPostern);
  const isOwnAccount = (subject: unknown) => {
    const { kind, name, namespace } = toMap(subject);
    return kind === account.kind && name === account.name && namespace === account.namespace;
  };
  const bindings = created.length > 0 ? await api.list("ClusterRoleBinding") : [];
  return bindings.some(({ subjects }) => Array.isArray(subjects) && subjects.some(isOwnAccount)) ? [] : created;
};

/**
 * Returns the objects of a deployment in a cluster, in the order in which they are created. The Secret of the
 * ServiceAccount is left out, because few users may read it.
 */
export const listOwnObjects = async (api: ClusterApi, name: string): Promise<DeployedObject[]> => {
  const account = await api.get(toAccountReference(name));
  return sortObjects([...(account && isFromPostern(account) ? [account] : []), ...(await listDeployed(api, name))]);
};

const deletionMilliseconds = 30_000;

/** Deletes an object, and waits until it is gone. */
const deleteObject = async (api: ClusterApi, live: DeployedObject): Promise<DeployedObjectChange[]> => {
  const ref = toReference(live);
  const end = Date.now() + deletionMilliseconds;
  const wasThere = await deleteWithRetries(api, ref, end);
  for (; await api.get(ref); await wait(200))
    if (Date.now() > end)
      throw new Complaint(
        `cluster ${api.cluster}: the ${describeObject(ref)} still exists ${deletionMilliseconds / 1000} s after its deletion; a finalizer may block it`,
        1,
      );
  return wasThere ? [{ did: "removed", kind: ref.kind, name: ref.name }] : [];
};

/** Deletes an object. Tries again if a webhook entry of Postern fails: the API server may yet call a deleted entry. */
const deleteWithRetries = async (api: ClusterApi, ref: ObjectReference, end: number): Promise<boolean> => {
  for (;;)
    try {
      return await api.remove(ref);
    } catch (error) {
      if (!/failed calling webhook "[^"]+\.postern\.dev"/.test(toSentence(error)) || Date.now() > end) throw error;
      await wait(500);
    }
};

/** A webhook entry that calls Postern. */
interface WebhookEntryCallingPostern {
  /** The kind of its webhook configuration. */
  kind: DeployedKind;
  /** The name of its webhook configuration. */
  name: string;
  /** The name of the entry. */
  entry: string;
}

/**
 * Returns the entries in a cluster that call these addresses, or may call them through a relay (a Service that forwards
 * calls). It reads all webhook configurations, also those that Postern has not created.
 */
export const findEntriesCallingUrls = async (
  api: ClusterApi,
  baseUrls: readonly string[],
): Promise<WebhookEntryCallingPostern[]> => {
  const found = await Promise.all(webhookKinds.map((kind) => api.list(kind)));
  return found.flat().flatMap(({ kind, metadata, webhooks }) =>
    toNamedWebhookEntries(webhooks).flatMap((entry) => {
      const { url, service } = toMap(entry.clientConfig);
      const mayCall = service !== undefined && posternDomain.test(entry.name);
      return mayCall || baseUrls.some((base) => isUnderBase(url, base))
        ? [{ kind, name: metadata.name, entry: entry.name }]
        : [];
    }),
  );
};

/**
 * Reports whether a URL is equal to a base URL or below it: `https://a/b/c` is below `https://A:443/b`, and
 * `https://a/bc` is not.
 */
export const isUnderBase = (url: unknown, base: string): boolean => {
  if (typeof url !== "string" || !URL.canParse(url) || !URL.canParse(base)) return false;
  const [entryUrl, baseUrl] = [new URL(url), new URL(base)];
  const path = baseUrl.pathname.replace(/\/+$/, "");
  return entryUrl.origin === baseUrl.origin && (entryUrl.pathname === path || entryUrl.pathname.startsWith(`${path}/`));
};

/** What a webhook entry calls. */
interface WebhookEntryTarget {
  /** A rule or a group. */
  rule: string;
  variant?: string;
  phase: Phase;
}

const posternDomain = /\.postern\.dev$/;

/** Returns what each entry calls: rule and variant are in its name, VARIANT.RULE.postern.dev; its kind is the phase. */
export const listRulesCalledByEntries = (manifests: readonly object[]): WebhookEntryTarget[] =>
  sortObjects(manifests).flatMap(({ kind, webhooks }) =>
    toNamedWebhookEntries(webhooks).map(({ name }): WebhookEntryTarget => {
      const [rule = "", variant] = name.replace(posternDomain, "").split(".").reverse();
      const phase = kind === "MutatingWebhookConfiguration" ? "mutate" : "validate";
      return { rule, ...(variant !== undefined && { variant }), phase };
    }),
  );

/** Returns objects in the order of creation. Webhook entries call the cluster's relay to AWS, if they name one. */
const sortObjects = (objects: readonly object[]): DeployedObject[] => {
  const values: readonly unknown[] = objects;
  const invalid = values.find((object) => !isDeployedObject(object));
  if (invalid !== undefined) throw new Error(`${JSON.stringify(invalid).slice(0, 100)} can't be deployed`);
  return values
    .filter(isDeployedObject)
    .map(callThroughRelay)
    .sort((left, right) => creationOrder.indexOf(left.kind) - creationOrder.indexOf(right.kind));
};
