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

/** A namespace, the objects that plugins read in the namespace, and the steps that create and change other objects. */
export interface ObjectSet {
  /** `isEnding` is true if the namespace is being deleted. */
  namespace: { name: string; labels?: Record<string, string>; isMissing?: boolean; isEnding?: boolean };
  /** Objects that are created before the steps, such as a ResourceQuota. The API server may refuse some of them. */
  surroundings: NamedObject[];
  steps: CreationStep[];
}

/** An object, and the request that follows its creation. */
export interface CreationStep {
  object: NamedObject;
  /** True if the object has an unusual field or name. */
  isEdgeCase: boolean;
  /** The request that follows the creation. */
  next: "none" | "update" | "patch" | "delete" | "subresource";
  /** The subresource that the request writes, if `next` is "subresource". */
  subresource: string | undefined;
  /** The changes that the request makes. */
  edits: FieldEdit[];
}

/** A row of a table, which is chosen at random. `share` is the weight of this row. */
interface Row {
  share: number;
}

/** The tables of predicted.test.yaml. A number is the weight of its key. */
export interface SetTables {
  namespaces: (Row & Partial<ObjectSet["namespace"]>)[];
  accounts: (Row & JsonMap)[];
  scopes: (Row & JsonMap)[];
  objects: Record<string, number>;
  verbs: Record<CreationStep["next"], number>;
  /** `invalid` objects have many invalid parts, `unusual` ones have one of the `unusualFields`. */
  edgeCases: Record<"none" | "invalid" | "unusual", number>;
  /** Unusual values of fields, and the kinds of objects that have the field. */
  unusualFields: { kinds?: string[]; path: string; value: unknown }[];
  /** The ends of the names of edge cases: mostly "", or, for instance, "_Bad", which makes a name invalid. */
  nameEnds: Record<string, number>;
}

/** Generates one of the values. */
const pick = <T>(...values: T[]) => fc.constantFrom(...values);
/** Generates one of the rows, without its share. */
const pickRow = <T extends Row>(rows: readonly T[]) =>
  fc.oneof(...rows.map(({ share, ...row }) => ({ weight: share, arbitrary: fc.constant(row) })));
/** Generates one of the names. Each name has a weight. */
const pickName = <T extends string>(shares: Record<T, number>): Arbitrary<T> =>
  fc.oneof(...Object.entries<number>(shares).map(([name, weight]) => ({ weight, arbitrary: fc.constant(name as T) })));
/** Generates objects with any of these members. */
const optional = <T extends object>(members: { [Name in keyof T]: Arbitrary<T[Name]> }) =>
  fc.record(members, { requiredKeys: [] });

// No request is larger than a limit, because the API server would refuse such an object as invalid.
const requests = optional({ cpu: pick("100m", "500m"), memory: pick("64Mi") });
const limits = optional({ cpu: pick("500m", "1"), memory: pick("64Mi", "1Gi") });
/** Generates pod specs with one container, whose requests and limits vary. */
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
/** Generates objects that the set's ResourceQuota counts or its LimitRange limits. */
const smallObject: Arbitrary<JsonMap> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc
      .tuple(workload, fc.oneof(pick({}), podFields))
      .map(([spec, extraFields]) => ({ apiVersion: "v1", kind: "Pod", spec: { ...spec, ...extraFields } })),
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

/** Generates the hard limits of a ResourceQuota. */
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
/** Generates one of the limits in a LimitRange. */
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

/** The fields of an object, edits for its update, and an edit of one of its subresources. */
interface BodyWithEdits {
  body: JsonMap;
  edits: FieldEdit[];
  subresource: [name: string, edit: FieldEdit] | undefined;
}

/** Adds edits to generated bodies. The edits fit the kind of the body. */
const generateBodyWithEdits = (
  body: Arbitrary<JsonMap>,
  { common, edits, subresources }: ObjectGenerators,
): Arbitrary<BodyWithEdits> =>
  body.chain((body) => {
    const kind = (Object.keys(parityGeneratedKinds) as GeneratedKind[]).find(
      (name) => parityGeneratedKinds[name].kind === body.kind,
    );
    const labelEdit = generateFieldEdit("metadata.labels.app", pick("x", "y"));
    // The edits of the kind occur twice, so that they are chosen twice as often as the common ones.
    const kindEdits = kind ? [...edits[kind], ...edits[kind], ...common] : [];
    const subresourceEdits = (kind ? Object.entries(subresources[kind]) : []).map(([name, edit]) =>
      edit.map((edit): BodyWithEdits["subresource"] => [name, edit]),
    );
    return fc.record({
      body: fc.constant(body),
      edits: fc.array(fc.oneof(labelEdit, ...kindEdits), { minLength: 1, maxLength: 2 }),
      subresource: fc.oneof(...(subresourceEdits.length === 0 ? [fc.constant(undefined)] : subresourceEdits)),
    });
  });

/** Generates the object that the first request of a generated sequence creates. */
const takeFirstBody = (sequences: Arbitrary<RequestSequence>): Arbitrary<JsonMap> =>
  sequences
    // Objects of the kind `counters` have integers that are too large for JSON.parse.
    .filter(({ kind }) => kind !== "counters")
    .map(({ steps: [first] }) => (first && "body" in first ? (first.body as JsonMap) : {}));

/** Returns a name that ends with this text; "long" and "longer" stand for a name of 253 or 254 characters. */
const buildName = (base: string, end: string): string => {
  // A name has at most 253 characters.
  const length = { long: 253, longer: 254 }[end];
  return length === undefined ? `${base}${end}` : base.padEnd(length, "x");
};

/** Generates steps: a body to create, its name's end (odd in some edge cases), the next request's verb and edits. */
const generateStep = ({
  objects,
  verbs,
  edgeCases,
  unusualFields,
  nameEnds,
}: SetTables): Arbitrary<Omit<CreationStep, "object"> & { body: JsonMap; nameEnd: string }> => {
  const validGenerators = createObjectGenerators({ mayBeInvalid: false });
  const invalidGenerators = createObjectGenerators({ mayBeInvalid: true });
  const specialBodies = {
    small: smallObject,
    validated: takeFirstBody(validatingPolicyScenarios.policies),
    mutated: takeFirstBody(mutatingPolicyScenarios.mutatingPolicies),
  };
  // A label such as `p7: "on"` makes policy 7 apply to the object.
  const policyLabels = fc
    .array(fc.nat(149), { maxLength: 2 })
    .map((numbers) => Object.fromEntries(numbers.map((number) => [`p${number}`, "on"])));
  const generateBody = (kindOrSpecialBody: string, generators: ObjectGenerators): Arbitrary<JsonMap> =>
    kindOrSpecialBody in specialBodies
      ? specialBodies[kindOrSpecialBody as keyof typeof specialBodies]
      : fc.tuple(generators.buildObject(kindOrSpecialBody as GeneratedKind), policyLabels).map(([body, labels]) => {
          const metadata = Object(body.metadata);
          return { ...body, metadata: { ...metadata, labels: { ...metadata.labels, ...labels } } };
        });
  return fc.tuple(pickName(objects), pickName(edgeCases)).chain(([kindOrSpecialBody, edgeCase]) => {
    const generators = edgeCase === "invalid" ? invalidGenerators : validGenerators;
    return generateBodyWithEdits(generateBody(kindOrSpecialBody, generators), generators).chain((source) => {
      const kindFields = unusualFields.filter(
        ({ kinds }) => kinds === undefined || kinds.includes(String(source.body.kind)),
      );
      return fc
        .record({
          unusualField: pick(...kindFields),
          next: pickName(verbs),
          nameEnd: edgeCase === "none" ? fc.constant("") : pickName(nameEnds),
        })
        .map(({ unusualField, next, nameEnd }) => {
          const { body, edits, subresource: [subresource, subresourceEdit] = [] } = source;
          const path = unusualField.path.split(".").map((part) => (/^\d+$/.test(part) ? Number(part) : part));
          const writesSubresource = next === "subresource";
          return {
            body: edgeCase === "unusual" ? applyEdits(body, [{ path, value: unusualField.value }]) : body,
            isEdgeCase: edgeCase !== "none",
            next: writesSubresource && subresource === undefined ? "patch" : next,
            subresource: writesSubresource ? subresource : undefined,
            edits: writesSubresource && subresourceEdit ? [subresourceEdit] : edits,
            nameEnd,
          };
        });
    });
  });
};

/** Replaces an integer that is too large for JSON.parse by a small one. */
const roundInteger = (_: string, value: unknown) => (typeof value === "bigint" ? Number(value % 1000n) : value);

/** Returns generated sets. Each row of `tables.namespaces` is used by one set in turn; further sets use random rows. */
export const generateSets = (tables: SetTables, count: number, seed: number): ObjectSet[] => {
  const set = fc.record({
    namespace: pickRow(tables.namespaces),
    account: pickRow(tables.accounts),
    limits: fc.option(fc.array(limitItem, { minLength: 1, maxLength: 2 }), { nil: undefined }),
    quota: fc.option(fc.record({ hard, scopeFields: pickRow(tables.scopes) }), { nil: undefined }),
    parameters: fc.option(pick("1", "2", "many"), { nil: undefined }),
    steps: fc.array(generateStep(tables), { minLength: 3, maxLength: 5 }),
  });
  return fc.sample(set, { seed, numRuns: count }).map(({ account, steps, ...parts }, index) => {
    const setName = `set-${index}`;
    const namespace = tables.namespaces[index] ?? parts.namespace;
    // A row with a name is shared by sets, so surroundings there, such as a quota, would apply to several sets.
    const { name: namespaceName = setName } = namespace;
    const isShared = namespaceName !== setName;
    const buildObject = (kind: string, name: string, fields: object) => {
      return { apiVersion: "v1", kind, metadata: { name, namespace: namespaceName }, ...fields };
    };
    const { metadata: accountMetadata, ...accountFields } = account;
    const serviceAccount = buildObject("ServiceAccount", "default", accountFields);
    // `scopeFields` are the fields of the quota's spec that select objects: `scopes`, `scopeSelector` or none.
    const { hard = {}, scopeFields = {} } = parts.quota ?? {};
    // The API server accepts only `pods` in a quota with the scope BestEffort.
    const isBestEffort = "scopes" in scopeFields && (scopeFields.scopes as string[])[0] === "BestEffort";
    const allowedHard = isBestEffort ? { pods: hard.pods ?? "1" } : hard;
    const surroundings: object[] = [
      { ...serviceAccount, metadata: { ...serviceAccount.metadata, ...Object(accountMetadata) } },
    ];
    if (parts.limits) surroundings.push(buildObject("LimitRange", "limits", { spec: { limits: parts.limits } }));
    if (parts.quota)
      surroundings.push(buildObject("ResourceQuota", "quota", { spec: { hard: allowedHard, ...scopeFields } }));
    if (parts.parameters) surroundings.push(buildObject("ConfigMap", "limits", { data: { most: parts.parameters } }));
    return {
      namespace: { ...namespace, name: namespaceName },
      surroundings: isShared ? [] : (surroundings as NamedObject[]),
      steps: steps.map(({ body, nameEnd, ...step }, stepIndex): CreationStep => {
        const isNamespaced = body.kind !== "PersistentVolume" && body.kind !== "PriorityClass";
        const name = buildName(`${setName}-${stepIndex}`, nameEnd);
        const metadata = { ...Object(body.metadata), name, ...(isNamespaced && { namespace: namespaceName }) };
        const object = { ...body, metadata };
        return { ...step, object: JSON.parse(JSON.stringify(object, roundInteger)) };
      }),
    };
  });
};
