import type { NamedConditions, RequestMatch } from "postern/rule";
import type { CountedKind } from "./kinds.ts";
import { listCountedKinds, type WorkloadQuotaSettings } from "./settings.ts";

/** Returns a match for each API group of the counted kinds: for the objects, or for a subresource that they have. */
const listMatches = (
  settings: WorkloadQuotaSettings,
  operations: RequestMatch["operations"],
  subresource?: "scale" | "status",
): RequestMatch[] => {
  const kinds = listCountedKinds(settings).filter(
    (kind) => subresource === undefined || (subresource === "scale" ? kind.scale !== undefined : showsCompletion(kind)),
  );
  return [...Map.groupBy(kinds, ({ group }) => group)].map(([group, kindsOfGroup]): RequestMatch => {
    const resources = kindsOfGroup.map(({ resource }) => (subresource ? `${resource}/${subresource}` : resource));
    return { apiGroups: [group], apiVersions: ["*"], resources, operations, scope: "Namespaced" };
  });
};

/** Reports whether the status of a kind's objects shows when they have ended: by a phase or by a condition. */
const showsCompletion = ({ phase, conditions }: CountedKind) => phase !== undefined || conditions !== undefined;

const resize: RequestMatch = {
  apiGroups: [""],
  apiVersions: ["*"],
  resources: ["pods/resize"],
  operations: ["UPDATE"],
  scope: "Namespaced",
};

/** Returns the requests after which an object may use more of a quota. */
export const listChargeMatches = (settings: WorkloadQuotaSettings): RequestMatch[] => [
  ...listMatches(settings, ["CREATE", "UPDATE"]),
  ...listMatches(settings, ["UPDATE"], "scale"),
  resize,
];

/** Returns the updates of a status, by which jobs and Pods end, or ended jobs start again. */
export const listStatusMatches = (settings: WorkloadQuotaSettings): RequestMatch[] =>
  listMatches(settings, ["UPDATE"], "status");

/** Returns the requests after which an object may use less of a quota. */
export const listReleaseMatches = (settings: WorkloadQuotaSettings): RequestMatch[] => [
  ...listMatches(settings, ["DELETE"]),
  ...listStatusMatches(settings),
];

/**
 * Returns conditions that skip requests in namespaces without a quota, and objects counted with their owner. Users can
 * write any owner reference, so only an object that a controller creates is counted with its owner.
 */
export const buildConditions = (settings: WorkloadQuotaSettings): NamedConditions => {
  const { quotas, controllers } = settings;
  const namespaces = quotas.flatMap((quota) => quota.namespaces ?? []);
  const kinds = listCountedKinds(settings);
  // Leaves out kinds with `includesOwnedOnlyIf`, such as CronJob: the spec of a CronJob decides whether its Jobs are
  // counted with it, and a condition can't read this spec; the rule can.
  const ownerConditions = [
    ...Map.groupBy(
      kinds.filter(({ includesOwnedOnlyIf }) => includesOwnedOnlyIf === undefined),
      ({ group }) => group,
    ),
  ].map(([group, kindsOfGroup]) => {
    const isOfGroup = group === "" ? `== "v1"` : `.startsWith(${JSON.stringify(`${group}/`)})`;
    return `owner.apiVersion${isOfGroup} && owner.kind in ${JSON.stringify(kindsOfGroup.map(({ kind }) => kind))}`;
  });
  const isControlled = (object: string) =>
    `${object}.?metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false) && (${ownerConditions.join(" || ")}))`;
  const isController = `(request.userInfo.?username.orValue("") in ${JSON.stringify(controllers.users)} ||
    request.userInfo.?groups.orValue([]).exists(group, group in ${JSON.stringify(controllers.groups)}))`;
  return {
    ...(quotas.every((quota) => quota.namespaces) && {
      "is-in-a-namespace-with-a-quota": `request.?namespace.orValue("") in ${JSON.stringify([...new Set(namespaces)])}`,
    }),
    // Skips creations by a controller, and all deletions, of objects that a counted object controls. If such an object
    // was counted separately, because a user created it, a recount removes its reservation after the deletion.
    "is-not-counted-with-its-owner": `request.operation == "CREATE" ? !(${isController} && ${isControlled("object")}) :
      request.operation != "DELETE" || !${isControlled("oldObject")}`,
    // Skips updates that change neither the spec nor the status nor the owners.
    "may-use-more-or-less": `request.operation != "UPDATE" || request.?subResource.orValue("") != "" || ${["spec", "status", "metadata.?ownerReferences"].map((path) => `object.?${path} != oldObject.?${path}`).join(" || ")}`,
    // Skips updates of a status by which the object neither ends nor starts again.
    "may-have-ended": `request.?subResource.orValue("") != "status" || ${buildEndedCondition(kinds, { ended: "object", notEnded: "oldObject" })} || ${buildEndedCondition(kinds, { ended: "oldObject", notEnded: "object" })}`,
  };
};

/** Returns the conditions of the webhook entry `returns`, for updates by which ended jobs and Pods may start again. */
export const buildReturnConditions = (settings: WorkloadQuotaSettings): NamedConditions => ({
  ...buildConditions(settings),
  "may-have-ended": buildEndedCondition(listCountedKinds(settings), { ended: "oldObject", notEnded: "object" }),
});

/** Returns CEL: the object in the variable `ended` has ended, by phase or condition; the one in `notEnded` has not. */
const buildEndedCondition = (kinds: CountedKind[], { ended, notEnded }: Record<"ended" | "notEnded", string>) => {
  const types = JSON.stringify([...new Set(kinds.flatMap(({ conditions = [] }) => conditions))]);
  const listConditions = (of: string) => `${of}.?status.?conditions.orValue([])`;
  const isTrue = (condition: string) => `${condition}.?status.orValue("") == "True"`;
  return [
    ...kinds.flatMap(({ phase }) => {
      if (!phase) return [];
      const read = (of: string) => `${of}.?${phase.path.replaceAll(".", ".?")}.orValue("")`;
      const endPhases = JSON.stringify(phase.ended);
      return [`${read(ended)} in ${endPhases} && !(${read(notEnded)} in ${endPhases})`];
    }),
    `${listConditions(ended)}.exists(one, one.?type.orValue("") in ${types} && ${isTrue("one")} &&
      !${listConditions(notEnded)}.exists(two, two.?type.orValue("") == one.?type.orValue("") && ${isTrue("two")}))`,
  ].join(" || ");
};
