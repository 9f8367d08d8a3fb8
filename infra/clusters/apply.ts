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

/** The number of a cluster's objects that are read or written at once. */
const atOnce = 5;
export const webhookKinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] as const;
/**
 * The order of creation: roles exist before the entries of the rules that need them, and what changes objects before what
 * may refuse unchanged ones. Objects are deleted in the opposite order.
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
const rightKinds = ["ClusterRoleBinding", "ClusterRole"] as const;

/**
 * Returns all differences between the cluster's objects and the `wanted` ones, and this deployment's objects in the
 * cluster that are not wanted any more. Changes nothing.
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
 * Applies the wanted objects and returns the changes; unwanted roles are deleted last. A validating entry is added
 * after its rule's mutating entry and deleted before it: it may refuse objects that were not mutated. A policy that moves
 * between its entry and the API server is in effect in the new place before it leaves the old one.
 */
export const applyWantedObjectsToCluster = async (
  api: ClusterApi,
  wanted: readonly object[],
  name: string,
): Promise<DeployedObjectChange[]> => {
  const all = sortObjects(wanted);
  const changes = await applyRbacObjects(api, all);
  changes.push(...(await deleteRetiredEntries(api, all, name)));
  // An interrupted update may have changed something right before this one.
  let changedAt = Date.now();
  const waitForChange = () => wait(Math.max(0, changedAt + settleMilliseconds - Date.now()));
  const unproven = new Set<PolicyKind>();
  const findPolicyKind = (kind: DeployedKind) => {
    const policyKind = kind.replace("WebhookConfiguration", "AdmissionPolicy") as PolicyKind;
    return all.some((object) => object.kind === policyKind) ? policyKind : undefined;
  };
  /** Waits until the policies of a kind have an effect; deletes the new ones if they have none, so that they are missing. */
  const awaitEffect = async (kind: PolicyKind) => {
    await awaitPolicies(api, kind, name).catch(async (error) => {
      const created = changes.filter((change) => change.did === "made" && change.kind.startsWith(kind));
      for (const change of created.reverse()) await api.remove(change);
      throw error;
    });
    unproven.delete(kind);
  };
  for (const object of all.filter(({ kind }) => !isRbacKind(kind))) {
    const isFirst = object.kind === "MutatingWebhookConfiguration" && (await isNewInBoth(api, all, name));
    const policyKind = isWebhookKind(object.kind) ? findPolicyKind(object.kind) : undefined;
    if (policyKind && (await losesEntries(api, object))) await awaitEffect(policyKind).then(waitForChange);
    const change = await applyObject(api, object);
    if (change === undefined) continue;
    changes.push(change);
    changedAt = Date.now();
    if (isFirst) await wait(noticeMilliseconds);
    if (isPolicyKind(object.kind)) unproven.add(object.kind.replace(/Binding$/, "") as PolicyKind);
  }
  const unwanted = await listUnwanted(api, all, name);
  for (const { kind } of unwanted.filter((object) => isWebhookKind(object.kind))) {
    const policyKind = findPolicyKind(kind);
    if (policyKind) await awaitEffect(policyKind).then(waitForChange);
  }
  for (const kind of unproven) await awaitEffect(kind);
  if (unwanted.some(({ kind }) => isPolicyKind(kind))) await waitForChange();
  for (const live of unwanted) changes.push(...(await deleteObject(api, live)));
  return mergeChanges(changes);
};

/**
 * Milliseconds until all API servers of a cluster apply a new policy or call a new entry. Each looks for changed policies
 * once a second, and then reads the parameters of a new kind.
 */
const settleMilliseconds = 5000;

/** Reports whether an update removes entries of a webhook configuration. */
const losesEntries = async (api: ClusterApi, wanted: DeployedObject): Promise<boolean> => {
  const kept = listEntryNames(wanted);
  return listEntryNames(await api.get(toReference(wanted))).some((entry) => !kept.includes(entry));
};

/** Milliseconds that API servers may take to notice a changed webhook configuration. */
const noticeMilliseconds = 300;

/** Deletes the validating entries of rules that lose both phases, before their mutating entries. */
const deleteRetiredEntries = async (
  api: ClusterApi,
  all: DeployedObject[],
  name: string,
): Promise<DeployedObjectChange[]> => {
  const [mutating, validating] = await readConfigurations(api, name);
  if (validating === undefined || !isOurs(validating)) return [];
  const isGoing = (there: DeployedObject | undefined, entryName: string) =>
    listEntryNames(there).includes(entryName) &&
    !listEntryNames(all.find(({ kind }) => kind === there?.kind)).includes(entryName);
  const gone = toNamedWebhookEntries(validating.webhooks).filter((entry) => isGoing(validating, entry.name));
  if (!gone.some((entry) => isGoing(mutating, entry.name))) return [];
  const webhooks = toNamedWebhookEntries(validating.webhooks).filter((entry) => !gone.includes(entry));
  // If another client changed the configuration meanwhile, `replace` returns undefined, and a later step deletes the
  // entries.
  if ((await api.replace({ ...validating, webhooks })) === undefined) return [];
  await wait(noticeMilliseconds);
  return [{ did: "changed", kind: validating.kind, name }];
};

const isNewInBoth = async (api: ClusterApi, all: DeployedObject[], name: string): Promise<boolean> => {
  const presentNames = (await readConfigurations(api, name)).map(listEntryNames);
  const [mutating = [], validating = []] = listEntryNamesByKind(all);
  return validating.some((entry) => mutating.includes(entry) && !presentNames.some((names) => names.includes(entry)));
};

/** Returns the mutating and the validating webhook configuration of a name; undefined in the place of an absent one. */
export const readConfigurations = async (api: ClusterApi, name: string): Promise<(DeployedObject | undefined)[]> => {
  const [mutating, validating] = webhookKinds;
  return [await api.get({ kind: mutating, name }), await api.get({ kind: validating, name })];
};

const listEntryNames = (configuration: DeployedObject | undefined): string[] =>
  toNamedWebhookEntries(configuration?.webhooks).map(({ name }) => name);

const listEntryNamesByKind = (all: DeployedObject[]): string[][] =>
  webhookKinds.map((kind) => listEntryNames(all.find((object) => object.kind === kind)));

const mergeChanges = (changes: DeployedObjectChange[]): DeployedObjectChange[] => {
  const found = new Map<string, DeployedObjectChange>();
  for (const change of changes) {
    const key = `${change.kind} ${change.name}`;
    const before = found.get(key);
    found.set(key, before?.did === "made" ? before : change);
  }
  return [...found.values()];
};

export const applyRbacObjects = async (api: ClusterApi, wanted: readonly object[]): Promise<DeployedObjectChange[]> => {
  const changes: (DeployedObjectChange | undefined)[] = [];
  const objects = Map.groupBy(
    sortObjects(wanted).filter(({ kind }) => isRbacKind(kind)),
    ({ kind }) => kind,
  );
  for (const some of objects.values())
    changes.push(...(await runInParallel(atOnce, some, (object) => applyObject(api, object))));
  return changes.filter((change) => change !== undefined);
};

export const deletePosternObjects = async (
  api: ClusterApi,
  configurationName: string,
): Promise<DeployedObjectChange[]> => {
  const changes: DeployedObjectChange[] = [];
  const all = await listUnwanted(api, [], configurationName);
  const [mutating = [], validating = []] = listEntryNamesByKind(all);
  for (const live of all) {
    changes.push(...(await deleteObject(api, live)));
    const isHalf =
      live.kind === "ValidatingWebhookConfiguration" && validating.some((entry) => mutating.includes(entry));
    if (isHalf) await wait(noticeMilliseconds);
  }
  for (const live of await findUnusedAccount(api, configurationName)) changes.push(...(await deleteObject(api, live)));
  return changes;
};

interface ObjectPlan {
  live: DeployedObject | undefined;
  differences: DeployedObjectDifference[];
  next: DeployedObject;
  /**
   * True if the API server refuses to change the object into the wanted one, so that the object must be deleted
   * first.
   */
  mustBeRecreated: boolean;
}

const maxAttempts = 5;

/** Returns how a live object differs from the wanted one after the API server's defaulting, and what to write. */
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

const applyObject = async (api: ClusterApi, wanted: DeployedObject): Promise<DeployedObjectChange | undefined> => {
  const { kind, metadata } = wanted;
  for (let attempt = 1; attempt <= maxAttempts; attempt++) {
    const { live, differences, next, mustBeRecreated } = await planObject(api, wanted);
    if (differences.length === 0) return undefined;
    if (mustBeRecreated) await deleteObject(api, wanted);
    // Server-side apply would keep what other clients added, such as an entry or a selector that excludes everything.
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

/** Returns the wanted object with other clients' labels and the fields that controllers set. */
const mergeLiveFields = (live: DeployedObject, wanted: DeployedObject): DeployedObject => {
  const filled = wanted.kind === "Secret" || wanted.kind === "ServiceAccount" ? live : {};
  const { managedFields: _, ...metadata } = { managedFields: undefined, ...live.metadata };
  return {
    ...filled,
    ...wanted,
    metadata: {
      ...metadata,
      labels: { ...metadata.labels, ...wanted.metadata.labels },
      annotations: { ...metadata.annotations, ...wanted.metadata.annotations },
    },
  };
};

/** Reports whether an object must be deleted and created again: a binding's roleRef and a Secret's type are immutable. */
const mustBeRecreated = (live: DeployedObject, wanted: DeployedObject) =>
  !isDeepStrictEqual(live.roleRef, wanted.roleRef) || (wanted.kind === "Secret" && live.type !== wanted.type);

/** Returns the objects of this deployment that aren't wanted, in the order in which they are deleted. */
const listUnwanted = async (api: ClusterApi, wanted: DeployedObject[], name: string): Promise<DeployedObject[]> => {
  const isWanted = ({ kind, metadata }: DeployedObject) =>
    wanted.some((object) => object.kind === kind && object.metadata.name === metadata.name);
  const configurations = await readConfigurations(api, name);
  const rights = await Promise.all(rightKinds.map((kind) => api.list(kind)));
  const deployed = [
    ...configurations.filter((configuration) => configuration !== undefined).filter(isOurs),
    ...(await listOwnPolicies(api, name)),
    ...rights.flat().filter((object) => isLabelled(object) && object.metadata.name.startsWith(`${name}:`)),
  ];
  return sortObjects(deployed.filter((object) => !isWanted(object))).reverse();
};

/** Returns the policies and bindings of a deployment, which have its name before the name in their annotation. */
export const listOwnPolicies = async (api: ClusterApi, name: string): Promise<DeployedObject[]> => {
  const found = await Promise.all(policyKinds.map((kind) => api.list(kind, { isOptional: true })));
  return found
    .flat()
    .filter(({ metadata }) => metadata.name === `${name}.${metadata.annotations?.[policyNameAnnotation]}`);
};

/** Reports whether an object has the label of those that Postern made. */
export const isLabelled = ({ metadata }: DeployedObject) => metadata.labels?.[managedByLabel] === "postern";

/**
 * Reports whether a webhook configuration is Postern's: by its label or, if that was removed, by its entries' names.
 */
const isOurs = (configuration: DeployedObject) => {
  const entries = toNamedWebhookEntries(configuration.webhooks);
  return isLabelled(configuration) || (entries.length > 0 && entries.every(({ name }) => domain.test(name)));
};

/** Returns the reference to the functions' ServiceAccount. */
const toAccountReference = (name: string) => ({ kind: "ServiceAccount", name, namespace: "kube-system" }) as const;

/** Returns the functions' ServiceAccount and its Secret; none if another deployment still uses the account. */
const findUnusedAccount = async (api: ClusterApi, name: string): Promise<DeployedObject[]> => {
  const account = toAccountReference(name);
  const secret = { ...account, kind: "Secret", name: `${name}-token` } as const;
  const found = await Promise.all([secret, account].map(api.get));
  const ours = found.filter((object) => object !== undefined).filter(isLabelled);
  const isOwnAccount = (subject: unknown) => {
    const { kind, name, namespace } = toMap(subject);
    return kind === account.kind && name === account.name && namespace === account.namespace;
  };
  const bindings = ours.length > 0 ? await api.list("ClusterRoleBinding") : [];
  return bindings.some(({ subjects }) => Array.isArray(subjects) && subjects.some(isOwnAccount)) ? [] : ours;
};

/**
 * Returns the objects of a deployment in a cluster, in the order of their creation, but without the Secret of the
 * ServiceAccount, which Kubernetes deletes together with the account: few users may read it.
 */
export const listOwnObjects = async (api: ClusterApi, name: string): Promise<DeployedObject[]> => {
  const account = await api.get(toAccountReference(name));
  return sortObjects([...(account && isLabelled(account) ? [account] : []), ...(await listUnwanted(api, [], name))]);
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

/** Retries the deletion: for a moment, the API server may still call a deleted webhook entry. */
const deleteWithRetries = async (api: ClusterApi, ref: ObjectReference, end: number): Promise<boolean> => {
  for (;;)
    try {
      return await api.remove(ref);
    } catch (error) {
      if (!/failed calling webhook "[^"]+\.postern\.dev"/.test(toSentence(error)) || Date.now() > end) throw error;
      await wait(500);
    }
};

/** A webhook entry that calls Postern: its configuration's kind and name, and its own name. */
interface WebhookEntryCallingPostern {
  kind: DeployedKind;
  name: string;
  entry: string;
}

/**
 * Returns the entries of all webhook configurations in a cluster, of any owner, that call these addresses, or may do so
 * through a relay.
 */
export const findEntriesCallingUrls = async (
  api: ClusterApi,
  baseUrls: readonly string[],
): Promise<WebhookEntryCallingPostern[]> => {
  const found = await Promise.all(webhookKinds.map((kind) => api.list(kind)));
  return found.flat().flatMap(({ kind, metadata, webhooks }) =>
    toNamedWebhookEntries(webhooks).flatMap((entry) => {
      const { url, service } = toMap(entry.clientConfig);
      const mayCall = service !== undefined && domain.test(entry.name);
      return mayCall || baseUrls.some((base) => isUnderBase(url, base))
        ? [{ kind, name: metadata.name, entry: entry.name }]
        : [];
    }),
  );
};

/**
 * Reports whether a URL is equal to or below a base URL. Case of hosts and default ports don't matter, and paths are
 * compared by whole segments.
 */
export const isUnderBase = (url: unknown, base: string): boolean => {
  if (typeof url !== "string" || !URL.canParse(url) || !URL.canParse(base)) return false;
  const [entryUrl, baseUrl] = [new URL(url), new URL(base)];
  const path = baseUrl.pathname.replace(/\/+$/, "");
  return entryUrl.origin === baseUrl.origin && (entryUrl.pathname === path || entryUrl.pathname.startsWith(`${path}/`));
};

/** What the URL of a webhook entry calls: a rule or a group (also in `rule`), a variant and a phase. */
interface WebhookEntryTarget {
  rule: string;
  variant?: string;
  phase: Phase;
}

const domain = /\.postern\.dev$/;

/** Returns the rule, variant and phase that each entry of webhook configurations calls, by the entry's name. */
export const listRulesCalledByEntries = (manifests: readonly object[]): WebhookEntryTarget[] =>
  sortObjects(manifests).flatMap(({ kind, webhooks }) =>
    toNamedWebhookEntries(webhooks).map(({ name }): WebhookEntryTarget => {
      const [rule = "", variant] = name.replace(domain, "").split(".").reverse();
      const phase = kind === "MutatingWebhookConfiguration" ? "mutate" : "validate";
      return { rule, ...(variant !== undefined && { variant }), phase };
    }),
  );

const sortObjects = (objects: readonly object[]): DeployedObject[] => {
  const all: readonly unknown[] = objects;
  const strange = all.find((object) => !isDeployedObject(object));
  if (strange !== undefined) throw new Error(`${JSON.stringify(strange).slice(0, 100)} can't be deployed`);
  return all
    .filter(isDeployedObject)
    .map(callThroughRelay)
    .sort((left, right) => creationOrder.indexOf(left.kind) - creationOrder.indexOf(right.kind));
};
