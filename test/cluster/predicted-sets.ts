import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { mutatingPolicyScenarios } from "../parity/generators/mutating-policies.ts";
import { createObjectGenerators, type ObjectGenerators } from "../parity/generators/object-generators.ts";
import {
  type FieldEdit,
  type GeneratedKind,
  generateFieldEdit,
  parityGeneratedKinds,
  type RequestSequence,
} from "../parity/generators/steps.ts";
import { validatingPolicyScenarios } from "../parity/generators/validating-policies.ts";
import { applyEdits } from "../parity/sequence-sender.ts";

export type NamedObject = KubernetesObject & { metadata: { name: string; namespace?: string } };

/** A namespace, what plugins read in it, and objects that are created there and changed afterwards. */
export interface ObjectSet {
  namespace: { name: string; labels?: Record<string, string>; isMissing?: boolean; isEnding?: boolean };
  /** What is created in the namespace first; the API server may refuse some of it. */
  surroundings: NamedObject[];
  steps: CreationStep[];
}

/** An object, and what follows its creation. The last object of a set is created after all other steps. */
export interface CreationStep {
  object: NamedObject;
  isEdge: boolean;
  next: "none" | "update" | "patch" | "delete" | "subresource";
  subresource: string | undefined;
  edits: FieldEdit[];
}

interface Row {
  share: number;
}

/** The tables of predicted.test.yaml. */
export interface SetTables {
  namespaces: (Row & Partial<ObjectSet["namespace"]>)[];
  accounts: (Row & JsonMap)[];
  scopes: (Row & JsonMap)[];
  objects: Record<string, number>;
  verbs: Record<CreationStep["next"], number>;
  edges: Record<string, number>;
  rows: { kinds?: string[]; path: string; value: unknown }[];
  names: Record<string, number>;
}

const pick = <T>(...values: T[]) => fc.constantFrom(...values);
const pickRow = <T extends Row>(rows: readonly T[]) =>
  fc.oneof(...rows.map(({ share, ...row }) => ({ weight: share, arbitrary: fc.constant(row) })));
const pickName = <T extends string>(shares: Record<T, number>): Arbitrary<T> =>
  fc.oneof(...Object.entries<number>(shares).map(([name, weight]) => ({ weight, arbitrary: fc.constant(name as T) })));
const optional = <T extends object>(members: { [Name in keyof T]: Arbitrary<T[Name]> }) =>
  fc.record(members, { requiredKeys: [] });

// Each request is at most each limit, for else the API server would find the object invalid.
const requests = optional({ cpu: pick("100m", "500m"), memory: pick("64Mi") });
const limits = optional({ cpu: pick("500m", "1"), memory: pick("64Mi", "1Gi") });
const workload = fc
  .record({
    image: pick("a:1", "b"),
    resources: fc.oneof(
      optional({ requests, limits }),
      fc.record({ requests, limits: fc.constant({ cpu: "1", memory: "1Gi" }) }),
    ),
  })
  .map((container) => ({ containers: [{ name: "c", ...container }] }));
const podFields = optional({ priorityClassName: pick("high"), activeDeadlineSeconds: pick(60) });
/** Objects that a set's quota counts and its limits are about. */
const smallObject: Arbitrary<JsonMap> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc
      .tuple(workload, fc.oneof(pick({}), podFields))
      .map(([spec, more]) => ({ apiVersion: "v1", kind: "Pod", spec: { ...spec, ...more } })),
  },
  pick("ClusterIP", "NodePort", "LoadBalancer").map((type) => {
    return { apiVersion: "v1", kind: "Service", spec: { type, ports: [{ port: 80 }] } };
  }),
  pick("1Gi", "2Gi", "10Gi").map((storage) => {
    const resources = { requests: { storage } };
    return { apiVersion: "v1", kind: "PersistentVolumeClaim", spec: { accessModes: ["ReadWriteOnce"], resources } };
  }),
  pick("ConfigMap", "Secret").map((kind) => ({ apiVersion: "v1", kind, data: {} })),
  workload.map((spec) => {
    const labels = { app: "a" };
    const template = { metadata: { labels }, spec };
    return { apiVersion: "apps/v1", kind: "Deployment", spec: { selector: { matchLabels: labels }, template } };
  }),
);

const hard = optional({
  pods: pick("0", "1", "2"),
  "requests.cpu": pick("500m", "1", "2"),
  cpu: pick("1"),
  "limits.memory": pick("1Gi", "100Mi"),
  services: pick("1"),
  "services.nodeports": pick("0", "1"),
  "services.loadbalancers": pick("0"),
  persistentvolumeclaims: pick("1"),
  "requests.storage": pick("2Gi", "12Gi"),
  "count/configmaps": pick("1"),
  secrets: pick("1"),
  "count/deployments.apps": pick("0", "1"),
});
const limitItem = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record(
      {
        type: fc.constant("Container"),
        default: limits,
        max: optional({ cpu: pick("1"), memory: pick("1Gi") }),
        min: optional({ cpu: pick("100m"), memory: pick("64Mi") }),
        maxLimitRequestRatio: optional({ cpu: pick("2", "5") }),
      },
      { requiredKeys: ["type"] },
    ),
  },
  optional({ cpu: pick("500m", "1"), memory: pick("64Mi", "1Gi") }).map((max) => ({ type: "Pod", max })),
  optional({ storage: pick("2Gi") }).map((max) => ({ type: "PersistentVolumeClaim", max, min: { storage: "1Gi" } })),
);

/** What an object is made of, and how it may be changed. */
interface Source {
  body: JsonMap;
  edits: FieldEdit[];
  subresource: [name: string, edit: FieldEdit] | undefined;
}

const generateSource = (
  body: Arbitrary<JsonMap>,
  { common, edits, subresources }: ObjectGenerators,
): Arbitrary<Source> =>
  body.chain((body) => {
    const kind = (Object.keys(parityGeneratedKinds) as GeneratedKind[]).find(
      (one) => parityGeneratedKinds[one].kind === body.kind,
    );
    const label = generateFieldEdit("metadata.labels.app", pick("x", "y"));
    const own = kind ? [...edits[kind], ...edits[kind], ...common] : [];
    const below = kind ? Object.entries(subresources[kind]) : [];
    return fc.record({
      body: fc.constant(body),
      edits: fc.array(fc.oneof(label, ...own), { minLength: 1, maxLength: 2 }),
      subresource: fc.oneof(
        ...(below.length === 0
          ? [fc.constant(undefined)]
          : below.map(([name, edit]) => edit.map((edit): Source["subresource"] => [name, edit]))),
      ),
    });
  });

/** Returns the object with which sequences of requests begin, for some kinds of objects only. */
const takeFirst = (sequences: Arbitrary<RequestSequence>): Arbitrary<JsonMap> =>
  sequences
    // Counters have integers that JavaScript can't read in the API server's answers.
    .filter(({ kind }) => kind !== "counters")
    .map(({ steps: [first] }) => (first && "body" in first ? (first.body as JsonMap) : {}));

/** Returns the name of a set's object, with what makes it an edge case. */
const buildName = (base: string, more: string): string => {
  const length = { long: 253, longer: 254 }[more];
  return length === undefined ? `${base}${more}` : base.padEnd(length, "x");
};

const generateStep = ({
  objects,
  verbs,
  edges,
  rows,
  names,
}: SetTables): Arbitrary<Omit<CreationStep, "object"> & { body: JsonMap; name: string }> => {
  const valid = createObjectGenerators(false);
  const odd = createObjectGenerators(true);
  const chosen = {
    small: smallObject,
    validated: takeFirst(validatingPolicyScenarios.policies),
    mutated: takeFirst(mutatingPolicyScenarios.mutatingPolicies),
  };
  const policies = fc
    .array(fc.nat(149), { maxLength: 2 })
    .map((all) => Object.fromEntries(all.map((index) => [`p${index}`, "on"])));
  const generateBody = (name: string, generators: ObjectGenerators): Arbitrary<JsonMap> =>
    name in chosen
      ? chosen[name as keyof typeof chosen]
      : fc.tuple(generators.buildObject(name as GeneratedKind), policies).map(([body, labels]) => {
          const metadata = Object(body.metadata);
          return { ...body, metadata: { ...metadata, labels: { ...metadata.labels, ...labels } } };
        });
  return fc.tuple(pickName(objects), pickName(edges)).chain(([name, edge]) => {
    const generators = edge === "odd" ? odd : valid;
    return generateSource(generateBody(name, generators), generators).chain((source) => {
      const fitting = rows.filter(({ kinds }) => kinds === undefined || kinds.includes(String(source.body.kind)));
      return fc
        .record({
          row: pick(...fitting),
          next: pickName(verbs),
          name: edge === "none" ? fc.constant("") : pickName(names),
        })
        .map(({ row, next, name }) => {
          const { subresource: [subresource, edit] = [], body } = source;
          const edits = row.path.split(".").map((part) => (/^\d+$/.test(part) ? Number(part) : part));
          return {
            body: edge === "row" ? applyEdits(body, [{ path: edits, value: row.value }]) : body,
            isEdge: edge !== "none",
            next: next === "subresource" && subresource === undefined ? "patch" : next,
            subresource: next === "subresource" ? subresource : undefined,
            edits: next === "subresource" && edit ? [edit] : source.edits,
            name,
          };
        });
    });
  });
};

/** Makes an integer one that JavaScript reads in the API server's answers. */
const roundInteger = (_: string, value: unknown) => (typeof value === "bigint" ? Number(value % 1000n) : value);

/** Returns generated sets, whose namespaces have different names. The first sets have one of each row of namespaces. */
export const generateSets = (tables: SetTables, count: number, seed: number): ObjectSet[] => {
  const set = fc.record({
    namespace: pickRow(tables.namespaces),
    account: pickRow(tables.accounts),
    limits: fc.option(fc.array(limitItem, { minLength: 1, maxLength: 2 }), { nil: undefined }),
    quota: fc.option(fc.record({ hard, scopes: pickRow(tables.scopes) }), { nil: undefined }),
    parameters: fc.option(pick("1", "2", "many"), { nil: undefined }),
    steps: fc.array(generateStep(tables), { minLength: 3, maxLength: 5 }),
  });
  return fc.sample(set, { seed, numRuns: count }).map(({ account, steps, ...parts }, index) => {
    const own = `set-${index}`;
    const namespace = tables.namespaces[index] ?? parts.namespace;
    const { name: home = own } = namespace;
    const place = (kind: string, name: string) => ({ apiVersion: "v1", kind, metadata: { name, namespace: home } });
    const { metadata: more, ...fields } = account;
    const user = place("ServiceAccount", "default");
    const { hard = {}, scopes = {} } = parts.quota ?? {};
    const isBestEffort = "scopes" in scopes && (scopes.scopes as string[])[0] === "BestEffort";
    const counted = isBestEffort ? { pods: hard.pods ?? "1" } : hard;
    const surroundings = [
      { ...user, ...fields, metadata: { ...user.metadata, ...Object(more) } },
      ...(parts.limits ? [{ ...place("LimitRange", "limits"), spec: { limits: parts.limits } }] : []),
      ...(parts.quota ? [{ ...place("ResourceQuota", "quota"), spec: { hard: counted, ...scopes } }] : []),
      ...(parts.parameters ? [{ ...place("ConfigMap", "limits"), data: { most: parts.parameters } }] : []),
    ];
    return {
      namespace: { ...namespace, name: home },
      surroundings: home === own ? (surroundings as NamedObject[]) : [],
      steps: steps.map(({ body, name, ...step }, at): CreationStep => {
        const isNamespaced = body.kind !== "PersistentVolume" && body.kind !== "PriorityClass";
        const placed = { name: buildName(`${own}-${at}`, name), ...(isNamespaced && { namespace: home }) };
        const object = { ...body, metadata: { ...Object(body.metadata), ...placed } };
        return { ...step, object: JSON.parse(JSON.stringify(object, roundInteger)) };
      }),
    };
  });
};
