import type { NamedConditions, RequestMatch } from "postern/rule";
import { ownsPods } from "./kinds.ts";
import { listCountedKinds, type WorkloadQuotaSettings } from "./settings.ts";

/** Returns a match for each group of the counted kinds. */
const listMatches = (
  settings: WorkloadQuotaSettings,
  operations: RequestMatch["operations"],
  suffix: "" | "/scale" | "/status",
): RequestMatch[] => {
  const kinds = listCountedKinds(settings).filter(
    ({ scale, phase, conditions }) =>
      suffix === "" || (suffix === "/scale" ? scale : (phase ?? conditions)) !== undefined,
  );
  return [...Map.groupBy(kinds, ({ group }) => group)].map(([group, all]): RequestMatch => {
    const resources = all.map(({ resource }) => `${resource}${suffix}`);
    return { apiGroups: [group], apiVersions: ["*"], resources, operations, scope: "Namespaced" };
  });
};

const resize: RequestMatch = {
  apiGroups: [""],
  apiVersions: ["*"],
  resources: ["pods/resize"],
  operations: ["UPDATE"],
  scope: "Namespaced",
};

/** Returns the requests that may use more of a quota. */
export const listChargeMatches = (settings: WorkloadQuotaSettings): RequestMatch[] => [
  ...listMatches(settings, ["CREATE", "UPDATE"], ""),
  ...listMatches(settings, ["UPDATE"], "/scale"),
  resize,
];

/** Returns the requests after which less of a quota may be used, without being more of it in any case. */
export const listReleaseMatches = (settings: WorkloadQuotaSettings): RequestMatch[] => [
  ...listMatches(settings, ["DELETE"], ""),
  ...listMatches(settings, ["UPDATE"], "/status"),
];

/** Returns conditions that skip requests in other namespaces, and what controllers create for counted objects. */
export const buildConditions = (settings: WorkloadQuotaSettings): NamedConditions => {
  const { quotas, controllers } = settings;
  const namespaces = quotas.flatMap((quota) => quota.namespaces ?? []);
  const kinds = listCountedKinds(settings);
  const owners = [...Map.groupBy(kinds.filter(ownsPods), ({ group }) => group)].map(
    ([group, all]) =>
      `owner.apiVersion.startsWith(${JSON.stringify(`${group}/`)}) && owner.kind in ${JSON.stringify(all.map(({ kind }) => kind))}`,
  );
  const isControlled = (object: string) =>
    `${object}.?metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false) && (${owners.join(" || ")}))`;
  const isController = `(request.userInfo.?username.orValue("") in ${JSON.stringify(controllers.users)} ||
    request.userInfo.?groups.orValue([]).exists(group, group in ${JSON.stringify(controllers.groups)}))`;
  const phases = kinds.flatMap(({ phase }) => phase ?? []);
  const words = kinds.flatMap(({ conditions = [] }) => conditions);
  const hasEnded = (object: string) =>
    [
      ...phases.map(
        ({ path, ended }) => `${object}.?${path.replaceAll(".", ".?")}.orValue("") in ${JSON.stringify(ended)}`,
      ),
      `${object}.?status.?conditions.orValue([]).exists(condition, condition.?type.orValue("") in ${JSON.stringify([...new Set(words)])} && condition.?status.orValue("") == "True")`,
    ].join(" || ");
  return {
    ...(quotas.every((quota) => quota.namespaces) && {
      "is-in-a-namespace-with-a-quota": `request.?namespace.orValue("") in ${JSON.stringify([...new Set(namespaces)])}`,
    }),
    "is-not-counted-with-its-owner": `request.operation == "CREATE" ? !(${isController} && ${isControlled("object")}) :
      request.operation != "DELETE" || !${isControlled("oldObject")}`,
    "may-have-ended": `request.?subResource.orValue("") != "status" || ${hasEnded("object")} || ${hasEnded("oldObject")}`,
  };
};
