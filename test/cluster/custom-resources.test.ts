import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { after, before, describe, it } from "node:test";
import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { createCustomKinds } from "../../infra/apiserver/validation/custom-resources.ts";
import { createValidation } from "../../infra/apiserver/validation/validation.ts";
import { chooseMinors } from "../choices.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needsApiServer } from "../parts.ts";

// What an API server says of custom resources with generated schemas equals what is predicted: each fault with its
// words, the defaults, and the fields that are dropped.

const pick = <T>(...values: T[]) => fc.constantFrom(...values);
const sometimes = <T>(arbitrary: Arbitrary<T>) => fc.option(arbitrary, { nil: undefined, freq: 2 });
const clean = <T extends object>(record: Arbitrary<T>): Arbitrary<JsonMap> =>
  record.map((value) => JSON.parse(JSON.stringify(value)));

const message = fc.oneof(
  { weight: 2, arbitrary: fc.constant({}) },
  pick<JsonMap>(
    { message: " is wrong " },
    { messageExpression: "'not ' + string(type(self))" },
    { reason: "FieldValueForbidden" },
    { reason: "FieldValueDuplicate" },
    { reason: "FieldValueRequired", message: "needed" },
  ),
);
const createRules = (...rules: (string | JsonMap)[]): Arbitrary<JsonMap[] | undefined> =>
  sometimes(
    fc
      .tuple(pick(...rules), message)
      .map(([rule, said]) => [{ ...(typeof rule === "string" ? { rule } : rule), ...said }]),
  );
const nullable = pick(undefined, undefined, undefined, true);
const transition = [
  "self == oldSelf",
  { rule: "!oldSelf.hasValue() || self == oldSelf.value()", optionalOldSelf: true },
];

const text = clean(
  fc.record({
    type: fc.constant("string"),
    nullable,
    minLength: sometimes(pick(0, 1, 2)),
    maxLength: pick(1, 3, 20),
    pattern: sometimes(pick("^[a-z]*$", "b", "^a.c?$")),
    enum: fc.option(pick(["a", "b"], ["abc", ""]), { nil: undefined, freq: 5 }),
    format: fc.option(pick("date-time", "date", "ipv4", "uuid", "unknown"), { nil: undefined, freq: 5 }),
    "x-kubernetes-validations": createRules(
      "self.startsWith('a')",
      "self.size() < 2",
      "self.matches('^[a-c]+$')",
      "int(self) > 0",
      ...transition,
    ),
  }),
).map(({ format, ...schema }) => ({
  ...schema,
  // Rules see another type of value if there is a format.
  ...(schema["x-kubernetes-validations"] === undefined && format !== undefined && { format }),
}));
const integer = clean(
  fc.record({
    type: pick("integer", "number"),
    nullable,
    minimum: sometimes(pick(0, 2)),
    exclusiveMinimum: sometimes(fc.boolean()),
    maximum: sometimes(pick(3, 10)),
    exclusiveMaximum: sometimes(fc.boolean()),
    multipleOf: fc.option(pick(2), { nil: undefined, freq: 5 }),
    enum: fc.option(pick([1, 2], [0]), { nil: undefined, freq: 5 }),
    "x-kubernetes-validations": createRules("self > 1", "self < 2 || self > 4", "10 / int(self) > 2", ...transition),
  }),
).map(({ exclusiveMinimum, exclusiveMaximum, ...schema }) => ({
  ...schema,
  ...(schema.minimum !== undefined && exclusiveMinimum !== undefined && { exclusiveMinimum }),
  ...(schema.maximum !== undefined && exclusiveMaximum !== undefined && { exclusiveMaximum }),
}));
const scalar: Arbitrary<JsonMap> = fc.oneof(
  { weight: 3, arbitrary: text },
  { weight: 3, arbitrary: integer },
  pick<JsonMap>(
    { type: "boolean" },
    { type: "boolean", default: true },
    { "x-kubernetes-int-or-string": true },
    { type: "string", default: "d" },
    { type: "integer", format: "int32", default: 3 },
  ),
);

const { schema } = fc.letrec<{ schema: JsonMap; object: JsonMap; list: JsonMap; map: JsonMap }>((tie) => ({
  schema: fc.oneof(
    { maxDepth: 3, depthSize: "small" },
    { weight: 3, arbitrary: scalar },
    { weight: 3, arbitrary: tie("object") },
    { weight: 2, arbitrary: tie("list") },
    { weight: 1, arbitrary: tie("map") },
  ),
  object: clean(
    fc.record({
      type: fc.constant("object"),
      nullable,
      properties: fc.record({ a: tie("schema"), b: tie("schema"), "c-d": scalar }, { requiredKeys: ["a"] }),
      required: sometimes(pick(["a"], ["a", "b"])),
      maxProperties: fc.option(pick(1, 2), { nil: undefined, freq: 6 }),
      oneOf: fc.option(pick([{ required: ["a"] }, { required: ["b"] }]), { nil: undefined, freq: 6 }),
      anyOf: fc.option(pick([{ required: ["b"] }, { required: ["c-d"] }]), { nil: undefined, freq: 6 }),
      allOf: fc.option(pick([{ required: ["b"] }], [{ minProperties: 2 }, { required: ["a"] }]), {
        nil: undefined,
        freq: 6,
      }),
      not: fc.option(pick({ required: ["b"] }), { nil: undefined, freq: 8 }),
      "x-kubernetes-preserve-unknown-fields": pick(undefined, undefined, undefined, true),
      "x-kubernetes-validations": createRules("has(self.a)", { rule: "has(self.a)", fieldPath: ".a" }, ...transition),
    }),
  ),
  list: fc
    .tuple(
      tie("schema"),
      sometimes(pick(1, 2)),
      pick(2, 3),
      pick(undefined, "set", "map"),
      createRules("self.size() < 2", "self.all(x, x != self[0])", ...transition),
    )
    .map(([items, minItems, maxItems, kind, rules]) => {
      const isScalar =
        typeof items.type === "string" && !["object", "array"].includes(items.type) && items.nullable !== true;
      const entry = {
        type: "object",
        properties: { key: { type: "string", maxLength: 5 }, value: items },
        required: ["key"],
      };
      const form =
        kind === "map"
          ? { items: entry, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"] }
          : { items, ...(kind === "set" && isScalar && { "x-kubernetes-list-type": "set" }) };
      return JSON.parse(
        JSON.stringify({ type: "array", minItems, maxItems, ...form, "x-kubernetes-validations": rules }),
      );
    }),
  map: clean(
    fc.record({
      type: fc.constant("object"),
      additionalProperties: tie("schema"),
      maxProperties: pick(2, 3),
      minProperties: sometimes(pick(1)),
    }),
  ),
}));

const wrong = pick<unknown>("x", 7, 1.5, true, [], {}, null, [null], -1, "", { a: 1 });

/** Returns values for a schema, some of which are wrong. */
const createValue = (schema: JsonMap): Arbitrary<unknown> =>
  fc.oneof({ weight: 14, arbitrary: createLikelyValue(schema) }, { weight: 1, arbitrary: wrong });

const createLikelyValue = (schema: JsonMap): Arbitrary<unknown> => {
  const { type, properties, additionalProperties, items, enum: values, format } = schema;
  if (Array.isArray(values)) return pick<unknown>(...values, ...values, "zz");
  if (format === "date-time")
    return pick("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123+02:00", "2026-13-02T03:04:05Z", "now");
  if (format === "date") return pick("2026-01-02", "2026-02-30");
  if (format === "ipv4") return pick("10.0.0.1", "::1", "10.0.0.256");
  if (format === "uuid") return pick("123e4567-e89b-12d3-a456-426614174000", "1");
  if (type === "string") return pick("a", "ab", "abc", "b", "", "é", "aéééc", "1");
  if (type === "integer") return pick(0, 1, 2, 3, 4, 10, 11, 2147483648);
  if (type === "number") return pick(0, 1, 2.5, 3, 4, 10.5);
  if (type === "boolean") return fc.boolean();
  if (type === "array") return fc.array(createValue(items as JsonMap), { maxLength: 4 });
  if (type !== "object") return pick<unknown>(1, "a", "50%");
  if (additionalProperties)
    return fc.dictionary(pick("a", "b.c", "k"), createValue(additionalProperties as JsonMap), { maxKeys: 4 });
  const members = Object.entries(properties as Record<string, JsonMap>).map(([key, inner]) => [
    key,
    createValue(inner),
  ]);
  return fc.record({ ...Object.fromEntries(members), extra: fc.constant(1) }, { requiredKeys: [] });
};

const createDefinition = (index: number, spec: JsonMap) => {
  const kind = `Thing${index}`;
  const plural = `thing${index}s`;
  const schema = {
    type: "object",
    properties: { spec, status: { type: "object", properties: { phase: { type: "string", enum: ["a"] } } } },
    required: ["spec"],
  };
  const versions = [
    {
      name: "v1",
      served: true,
      storage: true,
      schema: { openAPIV3Schema: schema },
      ...(index % 2 === 0 && { subresources: { status: {} } }),
    },
  ];
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `${plural}.example.com` },
    spec: {
      group: "example.com",
      scope: "Namespaced",
      names: { kind, plural, singular: kind.toLowerCase() },
      versions,
    },
  };
};

const metadata = fc.oneof(
  { weight: 9, arbitrary: fc.constant({}) },
  pick<JsonMap>(
    { labels: { "a b": "c" } },
    { labels: { a: "-" } },
    { annotations: { "a/b/c": "d" } },
    { name: "Upper" },
  ),
);

const { POSTERN_RUNS } = process.env;
const runs = Number(POSTERN_RUNS ?? 30);
const objectsPerKind = 20;

for (const minor of chooseMinors(POSTERN_RUNS, 0))
  describe(`custom resources in Kubernetes ${minor}`, await needsApiServer(minor), () => {
    let cluster: TestCluster;
    before(async () => {
      cluster = await bootCluster(await requireBinaries(minor));
    });
    after(() => cluster?.stop());

    it("get the API server's refusals and defaults", async (t) => {
      const seed = Number(process.env.POSTERN_SEED ?? randomInt(2 ** 31));
      const { admin } = cluster;
      const specs = fc.sample(schema, { seed, numRuns: runs }).map((spec, index) => createDefinition(index, spec));
      const accepted: ReturnType<typeof createDefinition>[] = [];
      const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
      for (const body of specs) {
        const answer = await admin({ method: "POST", path, body });
        if (answer.code === 201) accepted.push(body);
      }
      const counts: Record<string, number> = {};
      const different: string[] = [];
      const compare = async (definition: (typeof accepted)[number], index: number) => {
        const { kind, plural } = definition.spec.names;
        const place = `/apis/example.com/v1/namespaces/default/${plural}`;
        const isServed = async () => (await admin({ method: "GET", path: place })).code === 200;
        await waitUntil(`the API server doesn't serve ${plural}`, isServed);
        const findCustomKind = createCustomKinds([definition], minor);
        const validate = createValidation(minor, findCustomKind);
        const value = fc.record(
          {
            spec: createValue(specs[index]?.spec.versions[0]?.schema.openAPIV3Schema.properties.spec ?? {}),
            status: pick({ phase: "a" }, { phase: "b" }),
          },
          { requiredKeys: ["spec"] },
        );
        const samples = fc.sample(fc.tuple(value, metadata), { seed: seed + index, numRuns: objectsPerKind });
        let old: KubernetesObject | undefined;
        for (const [number, [fields, own]] of samples.entries()) {
          const name = old?.metadata?.name ?? `a${number}`;
          const isUpdate = old !== undefined;
          const given = JSON.parse(
            JSON.stringify({
              apiVersion: "example.com/v1",
              kind,
              ...fields,
              metadata: { name, namespace: "default", ...(isUpdate ? {} : own) },
            }),
          );
          const answer = isUpdate
            ? await admin({
                method: "PUT",
                path: `${place}/${name}?dryRun=All`,
                body: { ...given, metadata: { ...given.metadata, resourceVersion: old?.metadata?.resourceVersion } },
              })
            : await admin({ method: "POST", path: place, body: given });
          counts[`${isUpdate ? "update " : ""}${answer.code}`] =
            (counts[`${isUpdate ? "update " : ""}${answer.code}`] ?? 0) + 1;
          const completed = findCustomKind(given)?.complete(given).object ?? given;
          const group = { group: "example.com", version: "v1" };
          const status = validate({
            kind: { ...group, kind },
            resource: { ...group, resource: plural },
            name,
            operation: isUpdate ? "UPDATE" : "CREATE",
            userInfo: {},
            object: completed,
            oldObject: old ?? null,
          });
          const list = (causes: unknown) =>
            ((causes ?? []) as Record<string, string>[]).map(({ field, message }) => `${field}: ${message}`).sort();
          const wanted = answer.code < 300 ? [] : [...new Set(list(Object(answer.body.details).causes))];
          const actual = list(Object(status).details?.causes);
          const isSameObject =
            answer.code >= 300 ||
            JSON.stringify(sortKeys(answer.body.spec)) === JSON.stringify(sortKeys(completed.spec));
          if (answer.code >= 400 && answer.code !== 422) continue;
          if (JSON.stringify(wanted) !== JSON.stringify(actual) || !isSameObject)
            different.push(
              [
                `the API server answers ${answer.code}`,
                ...wanted.filter((fault) => !actual.includes(fault)).map((fault) => `missing: ${fault}`),
                ...actual.filter((fault) => !wanted.includes(fault)).map((fault) => `unfounded: ${fault}`),
                isSameObject ? "" : `${JSON.stringify(answer.body.spec)} ${JSON.stringify(completed.spec)}`,
                JSON.stringify({ spec: given.spec, old: Object(old).spec, metadata: given.metadata }),
                JSON.stringify(specs[index]?.spec.versions[0]?.schema.openAPIV3Schema.properties.spec),
              ].join("\n"),
            );
          if (answer.code === 201 && !isUpdate && number >= objectsPerKind / 3) old = answer.body as KubernetesObject;
        }
      };
      for (const definition of accepted) await compare(definition, specs.indexOf(definition));
      t.diagnostic(`${accepted.length} of ${specs.length} definitions, ${JSON.stringify(counts)} with seed ${seed}`);
      assert.deepEqual(different.slice(0, 3), [], `${different.length} differ with seed ${seed}`);
      for (const code of ["201", "422", "update 200", "update 422"]) assert.ok(counts[code], JSON.stringify(counts));
    });
  });

const sortKeys = (value: unknown): unknown =>
  Array.isArray(value)
    ? value.map(sortKeys)
    : typeof value === "object" && value !== null
      ? Object.fromEntries(
          Object.entries(value)
            .sort(([left], [right]) => (left < right ? -1 : 1))
            .map(([key, inner]) => [key, sortKeys(inner)]),
        )
      : value;
