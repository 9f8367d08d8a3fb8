import { createRandom, type Random } from "../../infra/testing/random.ts";
import {
  hasMembers,
  type ObjectSchema,
  resolveType,
  type TypeReference,
  type ValueType,
} from "../../lib/admission-policies/merge/schemas.ts";
import { isMap, type JsonMap, toMap } from "../../lib/json.ts";

const mapKeys = ["a", "b", "c.d/e", "constructor", "__proto__"];
const texts = ["a", "b", "c", "", 'quo"te\n', "ü", "1"];
const numbers = [0, 1, 2, 80, -1, 443];
const scalars = ["a", "100m", "1Gi", "2024-01-01T00:00:00Z", 1, 80, "http", true];
/** Values that are valid for few types. */
const wrongValues = [null, "x", 1, 1000000.5, 0.00001, 2e20, true, [], {}, ["x", null], [{}], { x: [1, "y"], a: null }];

/** Whether an object is generated, a patch without atomic lists and maps, or a patch that may have some of these. */
type Purpose = "object" | "patch" | "patch with atomic values";

/** Generates objects of a schema, and patches for them. */
export const generatePair = (
  random: Random,
  schema: ObjectSchema,
  typeMeta: { apiVersion: string; kind: string },
): { object: JsonMap; patch: JsonMap } => {
  const generator = new ObjectGenerator(random, schema.types);
  const maxDepth = 7;
  const object = { ...toMap(generator.generate(schema.root, "object", maxDepth)), ...typeMeta };
  const choice = random.draw();
  const patch = toMap(generator.generate(schema.root, choice < 0.1 ? "patch with atomic values" : "patch", maxDepth));
  // A built-in object must fit its Go type. A custom object, always of example.org/v1, may be older than its schema.
  if (typeMeta.apiVersion === "example.org/v1" && random.decide(0.03)) spoil(random, object);
  for (let times = choice > 0.75 ? 1 + random.drawBelow(2) : 0; times > 0; times--) spoil(random, patch);
  return { object: { ...object, ...typeMeta }, patch };
};

/** Generates values of the types in a schema. `depth` limits how deeply lists and maps are nested. */
class ObjectGenerator {
  readonly #random: Random;
  readonly #types: ObjectSchema["types"];

  constructor(random: Random, types: ObjectSchema["types"]) {
    this.#random = random;
    this.#types = types;
  }

  generate(reference: TypeReference, purpose: Purpose, depth: number): unknown {
    const type = resolveType(this.#types, reference);
    const random = this.#random;
    if (random.decide(0.02)) return null;
    // A type may allow several forms of values.
    const forms: ("scalar" | "list" | "map")[] = [];
    if (type.scalar) forms.push("scalar", "scalar");
    if (type.items !== undefined && (purpose !== "patch" || !this.#isAtomicList(type))) forms.push("list");
    if (hasMembers(type)) forms.push("map");
    const form = random.pick(forms.length > 0 ? forms : ["list" as const]);
    if (form === "list") return this.#generateList(type, purpose, depth);
    return form === "map" ? this.#generateMap(type, purpose, depth) : this.#generateScalar(type.scalar);
  }

  #generateScalar(scalar: ValueType["scalar"]): unknown {
    if (scalar === "string") return this.#random.pick(texts);
    if (scalar === "number") return this.#random.pick(numbers);
    return scalar === "boolean" ? this.#random.decide(0.5) : this.#random.pick(scalars);
  }

  #generateList({ items = "any", keys, defaults }: ValueType, purpose: Purpose, depth: number): unknown[] {
    const random = this.#random;
    const length = depth <= 0 ? 0 : random.drawBelow(5);
    const usedKeys = new Set<string>();
    const elements: unknown[] = [];
    for (let index = 0; index < length; index++) {
      const element = this.generate(items, purpose, depth - 1);
      if (keys && isMap(element))
        for (const key of keys) {
          const { fields = {} } = resolveType(this.#types, items);
          const field = fields[key];
          if (field !== undefined && (defaults?.[key] === undefined || random.decide(0.7)))
            element[key] = this.#generateScalar(resolveType(this.#types, field).scalar);
        }
      // In a list with keys, only an object may have two elements with the same values of the keys.
      const elementKey = JSON.stringify(
        keys?.length && isMap(element) ? keys.map((key) => element[key] ?? defaults?.[key]) : element,
      );
      if (keys && element === null) continue;
      if (keys && usedKeys.has(elementKey) && !(purpose === "object" && random.decide(0.3))) continue;
      usedKeys.add(elementKey);
      elements.push(element);
    }
    return elements;
  }

  #generateMap({ fields = {}, values }: ValueType, purpose: Purpose, depth: number): JsonMap {
    const random = this.#random;
    const usable = Object.entries(fields).filter(([, field]) => purpose !== "patch" || !this.#isAtomic(field));
    const isLarge = usable.length > 6;
    const chosen = usable.filter(() => random.decide(isLarge ? 5 / usable.length : 0.5));
    const entries = chosen.map(([key, field]) => [key, this.generate(field, purpose, depth - 1)]);
    // These members are the most interesting ones in built-in kinds.
    for (const key of ["spec", "containers", "template", "ports", "metadata", "data"])
      if (Object.hasOwn(fields, key) && random.decide(0.6))
        entries.push([key, this.generate(fields[key] ?? "any", purpose, depth - 1)]);
    if (values !== undefined && depth > 0 && (purpose !== "patch" || !this.#isAtomic(values) || random.decide(0.2)))
      for (let count = random.drawBelow(3); count > 0; count--)
        entries.push([random.pick(mapKeys), this.generate(values, purpose, depth - 1)]);
    return Object.fromEntries(entries);
  }

  #isAtomic(reference: TypeReference): boolean {
    const type = resolveType(this.#types, reference);
    return (this.#isAtomicList(type) && type.scalar === undefined) || type.isAtomic === true;
  }

  #isAtomicList({ items, keys }: ValueType): boolean {
    return items !== undefined && (!keys || resolveType(this.#types, items).isAtomic === true);
  }
}

/** Replaces a value somewhere in an object by one that its schema mostly doesn't allow. */
const spoil = (random: Random, root: JsonMap): void => {
  let parent: JsonMap | unknown[] = root;
  for (;;) {
    const inner: (JsonMap | unknown[])[] = Object.values(parent).filter(
      (value) => isMap(value) || Array.isArray(value),
    );
    if (inner.length === 0 || random.decide(0.25)) break;
    parent = random.pick(inner);
  }
  const wrong = structuredClone(random.pick(wrongValues));
  if (Array.isArray(parent)) {
    if (parent.length === 0 || random.decide(0.3)) parent.push(wrong);
    else if (random.decide(0.5)) parent.push(structuredClone(random.pick(parent)));
    else parent[random.drawBelow(parent.length)] = wrong;
    return;
  }
  const keys = Object.keys(parent);
  const key = keys.length === 0 || random.decide(0.3) ? random.pick(["nope", ...mapKeys]) : random.pick(keys);
  if (random.decide(0.2)) delete parent[key];
  else Object.defineProperty(parent, key, { value: wrong, writable: true, enumerable: true, configurable: true });
};

/** Generates a CustomResourceDefinition with a structural schema. It joins two sets of properties, to get more. */
export const generateDefinition = (seed: number): object => {
  const random = createRandom(seed);
  const maxDepth = 5;
  const properties = { ...generateProperties(random, maxDepth), ...generateProperties(random, maxDepth) };
  const schema = {
    type: "object",
    properties: {
      spec: { type: "object", properties },
      ...(random.decide(0.5) && { status: generateSchema(random, maxDepth - 1) }),
      ...(random.decide(0.3) && { metadata: { type: "object" } }),
    },
    ...(random.decide(0.2) && { "x-kubernetes-preserve-unknown-fields": true }),
  };
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: "things.example.org" },
    spec: {
      group: "example.org",
      names: { kind: "Thing", listKind: "ThingList", plural: "things", singular: "thing" },
      scope: random.pick(["Namespaced", "Cluster"]),
      versions: [{ name: "v1", served: true, storage: true, schema: { openAPIV3Schema: schema } }],
    },
  };
};

const propertyNames = ["a", "b", "c", "name", "port", "constructor", "type"];

/** Generates the properties of an object in a structural schema. */
const generateProperties = (random: Random, depth: number): JsonMap =>
  Object.fromEntries(
    Array.from({ length: 1 + random.drawBelow(4) }, () => [
      random.pick(propertyNames),
      generateSchema(random, depth - 1),
    ]),
  );

const scalarSchemas = [
  { type: "string" },
  { type: "string", format: "byte" },
  { type: "string", format: "date-time" },
  { type: "integer", format: "int32" },
  { type: "number" },
  { type: "boolean", nullable: true },
];

/** Generates a structural schema of any type. */
const generateSchema = (random: Random, depth: number): JsonMap => {
  const choice = random.drawBelow(depth <= 0 ? 2 : 10);
  if (choice < 2) return { ...random.pick(scalarSchemas) };
  if (choice === 2)
    return random.pick([
      { "x-kubernetes-int-or-string": true },
      { "x-kubernetes-preserve-unknown-fields": true },
      { type: "object", "x-kubernetes-preserve-unknown-fields": true },
      { type: "object", additionalProperties: true },
      { type: "object" },
      { type: "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true },
      {
        type: "object",
        "x-kubernetes-embedded-resource": true,
        properties: { apiVersion: { type: "string" }, kind: { type: "string" }, metadata: { type: "object" } },
      },
    ]);
  if (choice < 6) return generateListSchema(random, depth);
  const mapType = random.decide(0.2) && { "x-kubernetes-map-type": random.pick(["atomic", "granular"]) };
  if (choice === 6) return { type: "object", additionalProperties: generateSchema(random, depth - 1), ...mapType };
  const keeps = random.decide(0.2) && { "x-kubernetes-preserve-unknown-fields": true };
  return { type: "object", properties: generateProperties(random, depth), ...mapType, ...keeps };
};

/** Generates the schema of a list: an atomic list, a set, or a map with one or two keys. */
const generateListSchema = (random: Random, depth: number): JsonMap => {
  const choice = random.drawBelow(5);
  if (choice === 0) return { type: "array", items: generateSchema(random, depth - 1) };
  if (choice === 1)
    return { type: "array", items: generateSchema(random, depth - 1), "x-kubernetes-list-type": "atomic" };
  if (choice === 2) {
    const items = random.decide(0.9) ? { ...random.pick(scalarSchemas) } : generateSchema(random, depth - 1);
    return { type: "array", items, "x-kubernetes-list-type": "set" };
  }
  const keys = random.pick([["name"], ["port", "type"], ["type", "name"]]);
  const keySchemas = keys.map((key): [string, JsonMap] => [
    key,
    random.pick([
      { type: "string" },
      { type: "string", default: "a" },
      { type: "integer" },
      { type: "integer", default: 80 },
      { "x-kubernetes-int-or-string": true },
    ]),
  ]);
  const properties = { ...generateProperties(random, depth), ...Object.fromEntries(keySchemas) };
  return {
    type: "array",
    items: { type: "object", properties },
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": keys,
  };
};
