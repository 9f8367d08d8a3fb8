import type { NamedConditions, RequestMatch, RuleVariant } from "postern/rule";
import {
  arePodSecurityModesPrivileged,
  getDefaultPolicy,
  type NamespacePolicy,
  type PodSecurityMode,
  parseNamespacePolicy,
  podSecurityLevels,
  podSecurityModes,
  toLabelKey,
} from "./policy.ts";
import {
  divideNamespacesByLabels,
  getNamespaceSelectionName,
  getPodSecurityEntryName,
  type LabelExpression,
  type PodSecurityLabelStates,
  toPodSecurityLabels,
} from "./selections.ts";
import type { PodSecuritySettings } from "./settings.ts";

// Each combination of levels in the labels of namespaces has a webhook entry, so the rule needn't read the namespace.
// Version labels have too many possible values: if a namespace has a version label, the rule reads the namespace.

const core = { apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"] } as const;
const pods: readonly RequestMatch[] = [{ ...core, resources: ["pods", "pods/ephemeralcontainers"] }];
const workloads: readonly RequestMatch[] = [
  { ...core, resources: ["podtemplates", "replicationcontrollers"] },
  { ...core, apiGroups: ["apps"], resources: ["daemonsets", "deployments", "replicasets", "statefulsets"] },
  { ...core, apiGroups: ["batch"], resources: ["cronjobs", "jobs"] },
];
const namespaces: readonly RequestMatch[] = [{ ...core, resources: ["namespaces"] }];

/** All requests that the rule checks: those for pods, workloads and namespaces. */
export const podSecurityMatches: readonly RequestMatch[] = [...pods, ...workloads, ...namespaces];

export const buildPodSecurityVariants = (settings: PodSecuritySettings): RuleVariant<PodSecuritySettings>[] => [
  { name: "namespaces", match: namespaces, matchConditions: { "changes-what-is-asked-of-pods": changesLabels } },
  ...buildEntries("pods", settings, { match: pods, matchConditions: buildPodConditions(settings) }),
  ...buildEntries("workloads", settings, { match: workloads, matchConditions: buildUserConditions(settings) }),
];

/** The modes that are checked for pods and for workloads. `enforce` is absent for workloads: they are never refused. */
const checkedModes = { pods: podSecurityModes, workloads: ["audit", "warn"] } satisfies Record<
  string,
  readonly PodSecurityMode[]
>;
type EntryKind = keyof typeof checkedModes;

/** Returns entries of a kind: for each set of namespaces with equal levels, and for namespaces with version labels. */
const buildEntries = (
  kind: EntryKind,
  settings: PodSecuritySettings,
  entry: Pick<RuleVariant<PodSecuritySettings>, "match" | "matchConditions">,
): RuleVariant<PodSecuritySettings>[] => {
  const { namespaces } = settings.exemptions;
  const notExempt: LabelExpression[] =
    namespaces.length > 0 ? [{ key: "kubernetes.io/metadata.name", operator: "NotIn", values: namespaces }] : [];
  const entriesByName = new Map(
    [...listEntriesByLevels(kind, getDefaultPolicy(settings)), ...versionLabelEntries].map(
      ({ name, expressions, refuses = true }) => [
        name,
        {
          ...entry,
          guards: kind === "pods" && refuses, // hardening makes entries fail closed that refuse, or may refuse
          namespaceSelector: { matchExpressions: [...notExempt, ...expressions] },
        },
      ],
    ),
  );
  // The settings' default levels decide which entries there are. Entries that exist only with other defaults match no
  // request, but stay callable: webhook entries of an earlier release call them until the entries are updated.
  return [...new Set([...entriesByName.keys(), ...listEntryNames(kind)])].map((name) => {
    return { name: getPodSecurityEntryName(kind, name), ...(entriesByName.get(name) ?? { match: [] }) };
  });
};

const withoutVersionLabels = podSecurityModes.map(
  (mode): LabelExpression => ({ key: toLabelKey(`${mode}-version`), operator: "DoesNotExist" }),
);

/** The webhook entries for namespaces with a version label. Their selectors select each namespace at most once. */
const versionLabelEntries = podSecurityModes.map(
  (mode, index): EntrySelection => ({
    name: `${mode}-version`,
    expressions: [{ key: toLabelKey(`${mode}-version`), operator: "Exists" }, ...withoutVersionLabels.slice(0, index)],
  }),
);

interface EntrySelection {
  name: string;
  expressions: LabelExpression[];
  /** Whether the entry can refuse a pod; undefined if this is unknown until the rule has read the namespace. */
  refuses?: boolean;
}

/** Returns webhook entries for pods or for workloads: one for each set of namespaces with equal levels. Caches them. */
const listEntriesByLevels = (kind: EntryKind, defaults: NamespacePolicy): EntrySelection[] => {
  const key = JSON.stringify([kind, defaults]);
  const found = cachedSelections.get(key) ?? selectEntries(kind, defaults);
  cachedSelections.set(key, found);
  return found;
};
const cachedSelections = new Map<string, EntrySelection[]>();

/**
 * Divides the namespaces into sets whose labels lead to the same levels in the checked modes. Returns an entry for each
 * set, except those in which every mode is privileged. `states` are the labels of a set, or one example of them.
 * Namespaces with a version label are selected by `versionLabelEntries` instead.
 */
const selectEntries = (kind: EntryKind, defaults: NamespacePolicy): EntrySelection[] => {
  const getPolicy = (states: PodSecurityLabelStates) =>
    parseNamespacePolicy(toPodSecurityLabels(states), defaults).policy;
  const describeLevels = (states: PodSecurityLabelStates) =>
    JSON.stringify(checkedModes[kind].map((mode) => getPolicy(states)[mode]));
  return divideNamespacesByLabels(describeLevels)
    .filter(({ states }) => !arePodSecurityModesPrivileged(getPolicy(states), checkedModes[kind]))
    .map(({ states, expressions }) => {
      const refuses = !arePodSecurityModesPrivileged(getPolicy(states), ["enforce"]);
      return {
        name: getNamespaceSelectionName(states),
        expressions: [...expressions, ...withoutVersionLabels],
        refuses,
      };
    });
};

const listEntryNames = (kind: EntryKind): string[] =>
  allDefaults.flatMap((defaults) => listEntriesByLevels(kind, defaults).map(({ name }) => name));

const demands = podSecurityLevels.map((level) => ({ level, version: "latest" as const }));
/** All combinations of default levels. */
const allDefaults = demands.flatMap((enforce) =>
  demands.flatMap((audit) => demands.map((warn) => ({ enforce, audit, warn }))),
);

const buildUserConditions = ({ exemptions: { usernames } }: PodSecuritySettings): NamedConditions =>
  usernames.length > 0
    ? { "user-is-judged": `!(request.userInfo.?username.orValue("") in ${JSON.stringify(usernames)})` }
    : {};

/** Returns the matchConditions of the entries for pods. */
const buildPodConditions = (settings: PodSecuritySettings): NamedConditions => {
  const { runtimeClasses } = settings.exemptions;
  return {
    "brings-containers-or-images": bringsImages,
    ...buildUserConditions(settings),
    ...(runtimeClasses.length > 0 && {
      "runtime-class-is-judged": `!(object.?spec.?runtimeClassName.orValue("") in ${JSON.stringify(runtimeClasses)})`,
    }),
  };
};

/** A CEL expression for one list of containers; `pod` and `kind` (the list's name) are variables around it. */
const containersHere = `(pod.?spec[?kind].orValue(null) == null ? [] : pod.spec[kind])`;
/**
 * A CEL condition: true for a new pod, for new containers or images, and for more than 50 containers of one kind: their
 * comparison would exceed the API server's cost limit. `[x].exists(both, ...)` only gives x a name: `both` is a list of
 * two lists, with the names and images of the containers in the new pod (`both[0]`) and in the old pod (`both[1]`).
 */
const bringsImages = `oldObject == null || ["containers", "initContainers", "ephemeralContainers"].exists(kind,
  [object, oldObject].exists(pod, size(${containersHere}) > 50) ||
  [[object, oldObject].map(pod, ${containersHere}.map(c, [c.name, c.?image.orValue("")]))].exists(both, both[0] != both[1]))`;

const ownKeys = podSecurityModes.flatMap((mode) => [toLabelKey(mode), toLabelKey(`${mode}-version`)]);
/** A CEL condition: true if the request changes a Pod Security label. Absent labels count as `-`, an invalid value. */
const changesLabels = `${JSON.stringify(ownKeys)}.exists(key, object.?metadata.?labels[?key].orValue("-") !=
  (oldObject == null ? "-" : oldObject.?metadata.?labels[?key].orValue("-")))`;
