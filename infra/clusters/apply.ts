import { setTimeout as wait } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import type { Phase } from "#lib/rule.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { type ClusterApi, called, isManifest, type Kind, type Manifest, type Ref, refOf } from "./api.ts";
import { compareObjects, type Difference, entriesIn, missing, unwanted } from "./drift.ts";

export interface Change {
  did: "made" | "changed" | "removed";
  kind: Kind;
  name: string;
}

const webhookKinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] as const;
/** The order of creation: roles exist before the entries of the rules that need them. */
const order: Kind[] = ["ServiceAccount", "Secret", "ClusterRole", "ClusterRoleBinding", ...webhookKinds];
const isWebhookKind = (kind: Kind) => webhookKinds.some((one) => one === kind);
const rightKinds = ["ClusterRoleBinding", "ClusterRole"] as const;
const managedBy = "app.kubernetes.io/managed-by";

/** Returns all differences from `wanted`, unwanted objects of this deployment included. Changes nothing. */
export const drift = async (api: ClusterApi, wanted: readonly object[], name: string): Promise<Difference[]> => {
  const found: Difference[] = [];
  const all = inOrder(wanted);
  for (const object of all) found.push(...(await plan(api, object)).differences);
  for (const live of await leftovers(api, all, name)) found.push(...unwanted(live));
  return found;
};

/**
 * Applies the wanted objects and returns the changes; unwanted roles are deleted last. A validating entry is added
 * after its rule's mutating entry and deleted before it: it may refuse objects that were not mutated.
 */
export const applyAll = async (api: ClusterApi, wanted: readonly object[], name: string): Promise<Change[]> => {
  const all = inOrder(wanted);
  const changes = await applyRights(api, all);
  changes.push(...(await retire(api, all, name)));
  for (const object of all.filter(({ kind }) => isWebhookKind(kind))) {
    const isFirst = object.kind === "MutatingWebhookConfiguration" && (await isNewInBoth(api, all, name));
    const change = await settle(api, object);
    if (change && isFirst) await wait(noticing);
    if (change) changes.push(change);
  }
  for (const live of await leftovers(api, all, name)) changes.push(...(await removed(api, live)));
  return oncePerObject(changes);
};

/** Milliseconds that API servers may take to notice a changed webhook configuration. */
const noticing = 300;

/** Deletes the validating entries of rules that lose both phases, before their mutating entries. */
const retire = async (api: ClusterApi, all: Manifest[], name: string): Promise<Change[]> => {
  const [mutating, validating] = await bothThere(api, name);
  if (validating === undefined || !isOurs(validating)) return [];
  const isGoing = (there: Manifest | undefined, one: string) =>
    namesIn(there).includes(one) && !namesIn(all.find(({ kind }) => kind === there?.kind)).includes(one);
  const gone = entriesIn(validating.webhooks).filter((one) => isGoing(validating, one.name));
  if (!gone.some((one) => isGoing(mutating, one.name))) return [];
  const webhooks = entriesIn(validating.webhooks).filter((one) => !gone.includes(one));
  // If another client changed it at the same time, a later step deletes these entries.
  if ((await api.replace({ ...validating, webhooks })) === undefined) return [];
  await wait(noticing);
  return [{ did: "changed", kind: validating.kind, name }];
};

const isNewInBoth = async (api: ClusterApi, all: Manifest[], name: string): Promise<boolean> => {
  const there = (await bothThere(api, name)).map(namesIn);
  const [mutating = [], validating = []] = webhookKinds.map((kind) => namesIn(all.find((one) => one.kind === kind)));
  return validating.some((one) => mutating.includes(one) && !there.some((names) => names.includes(one)));
};

const bothThere = async (api: ClusterApi, name: string): Promise<(Manifest | undefined)[]> => {
  const [mutating, validating] = webhookKinds;
  return [await api.get({ kind: mutating, name }), await api.get({ kind: validating, name })];
};

const namesIn = (configuration: Manifest | undefined): string[] =>
  entriesIn(configuration?.webhooks).map(({ name }) => name);

const oncePerObject = (changes: Change[]): Change[] => {
  const found = new Map<string, Change>();
  for (const change of changes) {
    const key = `${change.kind} ${change.name}`;
    const before = found.get(key);
    found.set(key, before?.did === "made" ? before : change);
  }
  return [...found.values()];
};

export const applyRights = async (api: ClusterApi, wanted: readonly object[]): Promise<Change[]> => {
  const changes: Change[] = [];
  for (const object of inOrder(wanted).filter(({ kind }) => !isWebhookKind(kind))) {
    const change = await settle(api, object);
    if (change) changes.push(change);
  }
  return changes;
};

export const removeAll = async (api: ClusterApi, name: string): Promise<Change[]> => {
  const changes: Change[] = [];
  const all = await leftovers(api, [], name);
  const [mutating = [], validating = []] = webhookKinds.map((kind) => namesIn(all.find((one) => one.kind === kind)));
  for (const live of all) {
    changes.push(...(await removed(api, live)));
    const isHalf = live.kind === "ValidatingWebhookConfiguration" && validating.some((one) => mutating.includes(one));
    if (isHalf) await wait(noticing);
  }
  for (const live of await ownAccount(api)) changes.push(...(await removed(api, live)));
  return changes;
};

interface Plan {
  live: Manifest | undefined;
  differences: Difference[];
  next: Manifest;
  /** The API server refuses to change the object into the wanted one; it must be deleted first. */
  isAnother: boolean;
}

const tries = 5;

/** Compares the live object with the wanted one after the API server's defaulting. */
const plan = async (api: ClusterApi, wanted: Manifest): Promise<Plan> => {
  for (let attempt = 1; attempt <= tries; attempt++) {
    const live = await api.get(refOf(wanted));
    if (live === undefined) return { live, differences: missing(wanted), next: wanted, isAnother: false };
    const next = over(live, wanted);
    if (isAnother(live, wanted))
      return { live, differences: compareObjects(live, next), next: wanted, isAnother: true };
    const expected = await api.replace(next, { dryRun: true });
    if (expected === undefined) continue;
    return { live, differences: compareObjects(live, expected), next, isAnother: false };
  }
  throw busy(api, wanted);
};

const settle = async (api: ClusterApi, wanted: Manifest): Promise<Change | undefined> => {
  const { kind, metadata } = wanted;
  for (let attempt = 1; attempt <= tries; attempt++) {
    const { live, differences, next, isAnother } = await plan(api, wanted);
    if (differences.length === 0) return undefined;
    if (isAnother) await removed(api, wanted);
    // Server-side apply would keep what other clients added, such as an entry or a selector that excludes everything.
    const isDone = live && !isAnother ? await api.replace(next) : await api.apply(next);
    if (isDone) return { did: live ? "changed" : "made", kind, name: metadata.name };
  }
  throw busy(api, wanted);
};

const busy = ({ cluster }: ClusterApi, object: Manifest) =>
  new Complaint(`cluster ${cluster}: somebody else changes the ${called(refOf(object))} at the same time`, 1);

/** Returns the wanted object with other clients' labels and the fields that controllers set. */
const over = (live: Manifest, wanted: Manifest): Manifest => {
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

/** A binding's roleRef and a Secret's type are immutable. */
const isAnother = (live: Manifest, wanted: Manifest) =>
  !isDeepStrictEqual(live.roleRef, wanted.roleRef) || (wanted.kind === "Secret" && live.type !== wanted.type);

/** Returns the objects of this deployment that aren't wanted: webhook configurations first, roles last. */
const leftovers = async (api: ClusterApi, wanted: Manifest[], name: string): Promise<Manifest[]> => {
  const isWanted = ({ kind, metadata }: Manifest) =>
    wanted.some((one) => one.kind === kind && one.metadata.name === metadata.name);
  const configurations = (await bothThere(api, name)).reverse();
  const rights = await Promise.all(rightKinds.map((kind) => api.list(kind)));
  return [
    ...configurations.filter((one) => one !== undefined).filter(isOurs),
    ...rights.flat().filter((one) => isLabelled(one) && one.metadata.name.startsWith(`${name}:`)),
  ].filter((one) => !isWanted(one));
};

const isLabelled = ({ metadata }: Manifest) => metadata.labels?.[managedBy] === "postern";

/** Recognizes a configuration by its entries if its label was removed. */
const isOurs = (configuration: Manifest) => {
  const entries = entriesIn(configuration.webhooks);
  return isLabelled(configuration) || (entries.length > 0 && entries.every(({ name }) => domain.test(name)));
};

/** Returns the functions' ServiceAccount and its Secret; none if another deployment still uses the account. */
const ownAccount = async (api: ClusterApi): Promise<Manifest[]> => {
  const account = { kind: "ServiceAccount", name: "postern", namespace: "kube-system" } as const;
  const secret = { ...account, kind: "Secret", name: "postern-token" } as const;
  const found = await Promise.all([secret, account].map(api.get));
  const ours = found.filter((one) => one !== undefined).filter(isLabelled);
  const isItself = (subject: unknown) => {
    const { kind, name, namespace } = Object(subject);
    return kind === account.kind && name === account.name && namespace === account.namespace;
  };
  const bindings = ours.length > 0 ? await api.list("ClusterRoleBinding") : [];
  return bindings.some(({ subjects }) => Array.isArray(subjects) && subjects.some(isItself)) ? [] : ours;
};

const going = 30_000;

/** Deletes an object, and waits until it is gone. */
const removed = async (api: ClusterApi, live: Manifest): Promise<Change[]> => {
  const ref = refOf(live);
  const end = Date.now() + going;
  const wasThere = await removedSoon(api, ref, end);
  for (; await api.get(ref); await wait(200))
    if (Date.now() > end)
      throw new Complaint(
        `cluster ${api.cluster}: the ${called(ref)} is still there ${going / 1000} s after it was removed; a finalizer may hold it`,
        1,
      );
  return wasThere ? [{ did: "removed", kind: ref.kind, name: ref.name }] : [];
};

/** Retries the deletion: for a moment, the API server may still call a deleted webhook entry. */
const removedSoon = async (api: ClusterApi, ref: Ref, end: number): Promise<boolean> => {
  for (;;)
    try {
      return await api.remove(ref);
    } catch (error) {
      if (!/failed calling webhook "[^"]+\.postern\.dev"/.test(toSentence(error)) || Date.now() > end) throw error;
      await wait(500);
    }
};

export interface Pointer {
  kind: Kind;
  name: string;
  entry: string;
}

/** Returns the entries of all webhook configurations in a cluster, of any owner, that call these addresses. */
export const pointers = async (api: ClusterApi, bases: readonly string[]): Promise<Pointer[]> => {
  const found = await Promise.all(webhookKinds.map((kind) => api.list(kind)));
  return found.flat().flatMap(({ kind, metadata, webhooks }) =>
    entriesIn(webhooks).flatMap((entry) => {
      const url = Object(entry.clientConfig).url;
      const isUnder = typeof url === "string" && bases.some((base) => liesUnder(url, base));
      return isUnder ? [{ kind, name: metadata.name, entry: entry.name }] : [];
    }),
  );
};

/** Compares parsed URLs: case of hosts and default ports don't matter, and a path counts by whole segments. */
const liesUnder = (url: string, base: string): boolean => {
  if (!URL.canParse(url) || !URL.canParse(base)) return false;
  const [one, other] = [new URL(url), new URL(base)];
  const path = other.pathname.replace(/\/+$/, "");
  return one.origin === other.origin && (one.pathname === path || one.pathname.startsWith(`${path}/`));
};

/** The target of an entry; `rule` may be a group. */
export interface Called {
  rule: string;
  variant?: string;
  phase: Phase;
}

const domain = /\.postern\.dev$/;

export const entriesNamed = (manifests: readonly object[]): Called[] =>
  inOrder(manifests).flatMap(({ kind, webhooks }) =>
    entriesIn(webhooks).map(({ name }): Called => {
      const [rule = "", variant] = name.replace(domain, "").split(".").reverse();
      const phase = kind === "MutatingWebhookConfiguration" ? "mutate" : "validate";
      return { rule, ...(variant !== undefined && { variant }), phase };
    }),
  );

const inOrder = (objects: readonly object[]): Manifest[] => {
  const all: readonly unknown[] = objects;
  const strange = all.find((one) => !isManifest(one));
  if (strange !== undefined) throw new Error(`${JSON.stringify(strange).slice(0, 100)} is nothing to deploy`);
  return all.filter(isManifest).sort((one, other) => order.indexOf(one.kind) - order.indexOf(other.kind));
};
