import { counter, get, onlyIf, pageReader, reader, sharedLedger } from "postern/needs";
import type { KubernetesObject } from "postern/review";
import { rule } from "postern/rule";
import { findChange, type ObjectReads } from "./change.ts";
import { countsUser, findCountedOwner, selectQuotas } from "./coverage.ts";
import {
  buildConditions,
  buildReturnConditions,
  listChargeMatches,
  listReleaseMatches,
  listStatusMatches,
} from "./entries.ts";
import { type ReadReservations, readLapsed } from "./lapsed-reservations.ts";
import { measureWorkload } from "./measure.ts";
import { recount } from "./recount.ts";
import { countRunningPods } from "./remains.ts";
import {
  type Amounts,
  applySighting,
  buildWarnings,
  charge,
  type Excess,
  hasLapsed,
  hasMore,
  type Kept,
  locate,
  type Reservation,
  recordHard,
  release,
} from "./reservations.ts";
import { findSettingsFault, getUnseenPercent, listCountedKinds, type WorkloadQuotaSettings } from "./settings.ts";

const settings: WorkloadQuotaSettings = {
  quotas: [],
  kinds: [],
  controllers: { users: ["system:kube-controller-manager"], groups: ["system:serviceaccounts:kube-system"] },
};

/** The timeout in seconds of entries for the status of Pods. It is short, because nodes depend on these writes. */
const podStatusTimeout = 2;

const noReservations: ReadReservations = { sightings: [], note: "" };

export default rule({
  summary: "Limits what workloads request in several clusters together, before their Pods exist.",
  match: (settings: WorkloadQuotaSettings) => [...listChargeMatches(settings), ...listReleaseMatches(settings)],
  matchConditions: buildConditions,
  variants: (settings: WorkloadQuotaSettings) => [
    { name: "charges", match: listChargeMatches(settings), failurePolicy: "Fail" },
    // A change of an ended object's status can start the object again, such as an aborted job.
    {
      name: "returns",
      match: listStatusMatches(settings),
      matchConditions: buildReturnConditions(settings),
      failurePolicy: "Fail",
      timeoutSeconds: podStatusTimeout,
    },
    // If the webhook can't be called for these requests, the quota stays charged until a recount.
    {
      name: "releases",
      match: listReleaseMatches(settings),
      failurePolicy: "Ignore",
      timeoutSeconds: podStatusTimeout,
    },
  ],
  sideEffects: "NoneOnDryRun",
  timeoutSeconds: 10,
  settings,
  checkSettings: findSettingsFault,
  needs: {
    ledger: sharedLedger(),
    // Workloads are read without the cache, because a quota must not be credited by an outdated answer.
    workloads: reader((settings: WorkloadQuotaSettings) => listCountedKinds(settings), { maxAge: 0 }),
    namespaces: onlyIf(
      ({ quotas }: WorkloadQuotaSettings) => quotas.some(({ namespaceLabels }) => namespaceLabels !== undefined),
      get("namespaces", { maxAge: 0 }),
    ),
    runtimeClasses: get("runtimeclasses"),
    listPage: pageReader((settings: WorkloadQuotaSettings) => listCountedKinds(settings)),
    count: counter(),
  },
  reconcile: recount,

  async validate(object: KubernetesObject, { request, oldObject, settings, now, ...needs }) {
    const { ledger, workloads, namespaces, runtimeClasses, count } = needs;
    const { cluster } = ledger;
    const time = now.getTime();
    const kinds = listCountedKinds(settings);
    const { group, resource, version } = request.resource;
    const kind = kinds.find((counted) => counted.group === group && counted.resource === resource);
    const namespace = request.namespace ?? "";
    const quotas = kind ? await selectQuotas(settings.quotas, cluster, namespace, namespaces) : [];
    if (!kind || quotas.length === 0) return;
    const reads: ObjectReads = { workloads, runtimeClasses };
    const change = await findChange(object, oldObject, kind, kinds, request, settings.controllers, reads);
    if (change === undefined || typeof change === "string") return change;

    // An API server sets the object's name before it calls validating webhooks; `postern check` doesn't.
    const name = request.name || object.metadata?.name || `${object.metadata?.generateName}${request.uid}`;
    // Only a forged review has other names; it could fill the ledger with long keys.
    if (![namespace, name, version].every((text) => /^[a-z0-9.-]{0,253}$/.test(text)))
      return "the namespace, name and version of a counted object must have at most 253 small letters, digits, hyphens and dots";
    const key = [group, resource, namespace, name].join("/");
    const parts = quotas.map((quota) => {
      const mayReserve = change.mayReserve && countsUser(quota, request.userInfo);
      return { ...change, quota, place: locate(quota.name, cluster, key), version, mayReserve };
    });

    /** Writes sightings into the ledger, and charges or releases the object unless the charge exceeds a quota. */
    const decide = async ({ sightings }: ReadReservations) => {
      const places = [...parts, ...sightings].map(({ place }) => place);
      // If the object doesn't grow, its reservation is only released, and the quota's sum doesn't change.
      const keys = [...new Set(places.flatMap(({ key, part }) => (change.grows ? [key, part] : [part])))];
      let excess: Excess[] = [];
      let warnings: string[] = [];
      await ledger.change<Kept>(keys, (values) => {
        const replaced = new Map(keys.map((key, index) => [key, values[index]]));
        for (const sighting of sightings) applySighting(replaced, sighting, time);
        if (change.grows) for (const { quota, place } of parts) recordHard(replaced, place.key, quota.hard, time);
        const charged = new Map(replaced);
        if (!change.grows) for (const { place } of parts) release(charged, place, time);
        excess = change.grows ? parts.flatMap((part) => charge(charged, part, time) ?? []) : [];
        warnings = change.grows ? quotas.flatMap((quota) => buildWarnings(charged, quota)) : [];
        const changed = excess.length > 0 ? replaced : charged;
        return request.dryRun ? values : keys.map((key) => changed.get(key));
      });
      return { excess, warnings };
    };

    const first = await decide(noReservations);
    if (first.excess.length === 0) return { warnings: first.warnings };

    const readObject = async (quotaName: string, path: string, { version, isOwned }: Reservation) => {
      const [group = "", resource = "", namespace = "", name = ""] = path.split("/");
      const kind = kinds.find((counted) => counted.group === group && counted.resource === resource);
      const covering = await selectQuotas(
        quotas.filter((quota) => quota.name === quotaName),
        cluster,
        namespace,
        namespaces,
      );
      if (!kind || covering.length === 0) return undefined;
      const found = await workloads.get({ group, resource, version }, name, namespace);
      if (!found || (!isOwned && findCountedOwner(found, kinds))) return undefined;
      return measureWorkload(found, kind, runtimeClasses);
    };
    const lapsedReads = await readLapsed(first.excess, ledger, time, request.uid, readObject, (namespace, isReserved) =>
      countRunningPods(namespace, kinds, workloads, isReserved),
    );
    const second = lapsedReads.sightings.length > 0 ? await decide(lapsedReads) : first;
    const unseen = lapsedReads.sightings.filter(
      ({ before, seen }) => before.phase === "charged" && !seen && hasLapsed(before, time),
    );
    if (!request.dryRun)
      count(unseen.map(() => ({ metric: "unseen_reservations", labels: { rule: "workload-quota" } })));
    if (second.excess.length === 0) return { warnings: second.warnings };
    return {
      refuse: second.excess.map(formatExcess).join("; ") + lapsedReads.note,
      ...(lapsedReads.fault && { audit: { unread: lapsedReads.fault } }),
    };
  },
});

/** Formats an excess for the user. `unseen` limits what is reserved for writes that weren't found in a cluster yet. */
const formatExcess = ({ quota, limit, requested, used, limited }: Excess): string => {
  // The object's name decides which of 64 values in the ledger its reservation is in. Another value may have room.
  if (limit === "room")
    return `quota ${quota.name} has no room for this reservation, as the ledger's value for this name is full: try another name`;
  const [exceeded, sum] =
    limit === "hard"
      ? ["quota", "used"]
      : [`unseen: ${getUnseenPercent(quota)}% of quota`, "reserved in this cluster and not seen yet"];
  // If the request alone is over the limit, its object must begin with smaller amounts, and can be enlarged once it is
  // seen. After 70 seconds (lapseMilliseconds), the API server can't store an admitted write: its charge is undone.
  const remedy = hasMore(requested, limited)
    ? "begin with less, or ask for a larger `unseen` in the quota's settings"
    : "try again: what the cluster has stored by then is seen, and the rest is credited after 70 seconds";
  return `exceeded ${exceeded}: ${quota.name}, requested: ${formatAmounts(requested)}, ${sum}: ${formatAmounts(used)}, limited: ${formatAmounts(limited)}${limit === "unseen" ? `; ${remedy}` : ""}`;
};

const formatAmounts = (amounts: Amounts): string =>
  Object.keys(amounts)
    .sort()
    .map((name) => `${name}=${amounts[name]}`)
    .join();
