import type { NamedConditions, RequestMatch, RuleVariant } from "postern/rule";
import { defaultPolicy, judgesNothing, keyOf, levels, type Mode, modes, type Policy, policyOf } from "./policy.ts";
import { type Expression, entryNameOf, labelsOf, nameOf, type States, selectionsBy } from "./selections.ts";
import type { Settings } from "./settings.ts";

// There is one entry per policy. Versions are unlimited, so namespaces with a version label are read.

const core = { apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"] } as const;
const pods: readonly RequestMatch[] = [{ ...core, resources: ["pods", "pods/ephemeralcontainers"] }];
const workloads: readonly RequestMatch[] = [
  { ...core, resources: ["podtemplates", "replicationcontrollers"] },
  { ...core, apiGroups: ["apps"], resources: ["daemonsets", "deployments", "replicasets", "statefulsets"] },
  { ...core, apiGroups: ["batch"], resources: ["cronjobs", "jobs"] },
];
const namespaces: readonly RequestMatch[] = [{ ...core, resources: ["namespaces"] }];

export const match: readonly RequestMatch[] = [...pods, ...workloads, ...namespaces];

export const variants = (settings: Settings): RuleVariant<Settings>[] => [
  { name: "namespaces", match: namespaces, matchConditions: { "changes-what-is-asked-of-pods": changesLabels } },
  ...entries("pods", settings, { match: pods, matchConditions: ofPods(settings) }),
  ...entries("workloads", settings, { match: workloads, matchConditions: ofUsers(settings) }),
];

/** A template is never refused. */
const judging = { pods: modes, workloads: ["audit", "warn"] } satisfies Record<string, readonly Mode[]>;
type Kind = keyof typeof judging;

const entries = (
  kind: Kind,
  settings: Settings,
  entry: Pick<RuleVariant<Settings>, "match" | "matchConditions">,
): RuleVariant<Settings>[] => {
  const { namespaces } = settings.exemptions;
  const notExempt: Expression[] =
    namespaces.length > 0 ? [{ key: "kubernetes.io/metadata.name", operator: "NotIn", values: namespaces }] : [];
  const chosen = new Map(
    [...byLevels(kind, defaultPolicy(settings)), ...byVersion].map(({ name, expressions, refuses = true }) => [
      name,
      {
        ...entry,
        guards: kind === "pods" && refuses,
        namespaceSelector: { matchExpressions: [...notExempt, ...expressions] },
      },
    ]),
  );
  // Names for other settings are kept, because entries of earlier settings remain for a while.
  return [...new Set([...chosen.keys(), ...namesOf(kind)])].map((name) => {
    return { name: entryNameOf(kind, name), ...(chosen.get(name) ?? { match: [] }) };
  });
};

const unversioned = modes.map((mode): Expression => ({ key: keyOf(`${mode}-version`), operator: "DoesNotExist" }));

/** Each namespace is in at most one of them. */
const byVersion = modes.map(
  (mode, index): Chosen => ({
    name: `${mode}-version`,
    expressions: [{ key: keyOf(`${mode}-version`), operator: "Exists" }, ...unversioned.slice(0, index)],
  }),
);

interface Chosen {
  name: string;
  expressions: Expression[];
  /** Whether a pod can be refused there; undefined means unknown. */
  refuses?: boolean;
}

const byLevels = (kind: Kind, defaults: Policy): Chosen[] => {
  const key = JSON.stringify([kind, defaults]);
  const found = known.get(key) ?? select(kind, defaults);
  known.set(key, found);
  return found;
};
const known = new Map<string, Chosen[]>();

const select = (kind: Kind, defaults: Policy): Chosen[] => {
  const policyOfAll = (said: States) => policyOf(labelsOf(said), defaults).policy;
  return selectionsBy((said) => JSON.stringify(judging[kind].map((mode) => policyOfAll(said)[mode])))
    .filter(({ said }) => !judgesNothing(policyOfAll(said), judging[kind]))
    .map(({ said, expressions }) => {
      const refuses = !judgesNothing(policyOfAll(said), ["enforce"]);
      return { name: nameOf(said), expressions: [...expressions, ...unversioned], refuses };
    });
};

const namesOf = (kind: Kind): string[] =>
  everyDefault.flatMap((defaults) => byLevels(kind, defaults).map(({ name }) => name));

const demands = levels.map((level) => ({ level, version: "latest" as const }));
const everyDefault = demands.flatMap((enforce) =>
  demands.flatMap((audit) => demands.map((warn) => ({ enforce, audit, warn }))),
);

const ofUsers = ({ exemptions: { usernames } }: Settings): NamedConditions =>
  usernames.length > 0
    ? { "user-is-judged": `!(request.userInfo.?username.orValue("") in ${JSON.stringify(usernames)})` }
    : {};

const ofPods = (settings: Settings): NamedConditions => {
  const { runtimeClasses } = settings.exemptions;
  return {
    "brings-containers-or-images": bringsImages,
    ...ofUsers(settings),
    ...(runtimeClasses.length > 0 && {
      "runtime-class-is-judged": `!(object.?spec.?runtimeClassName.orValue("") in ${JSON.stringify(runtimeClasses)})`,
    }),
  };
};

const containersHere = `(pod.?spec[?kind].orValue(null) == null ? [] : pod.spec[kind])`;
/** A condition that exceeds the API server's cost limit fails, so the rule itself checks long lists. */
const bringsImages = `oldObject == null || ["containers", "initContainers", "ephemeralContainers"].exists(kind,
  [object, oldObject].exists(pod, size(${containersHere}) > 50) ||
  [[object, oldObject].map(pod, ${containersHere}.map(c, [c.name, c.?image.orValue("")]))].exists(both, both[0] != both[1]))`;

const ownKeys = modes.flatMap((mode) => [keyOf(mode), keyOf(`${mode}-version`)]);
/** A hyphen stands for an absent label, because it is no valid value. */
const changesLabels = `${JSON.stringify(ownKeys)}.exists(key, object.?metadata.?labels[?key].orValue("-") !=
  (oldObject == null ? "-" : oldObject.?metadata.?labels[?key].orValue("-")))`;
